"""A run as Responses shows it: one object, the same keys always."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import client_metadata, door_facts, fault_of_run
from remit.api.openai._usage import responses_usage
from remit.contract import RunStatus, RunView

PREFIX: Final = "resp_"


def response_id(run: RunView) -> str:
    """The response's id."""
    return PREFIX + run.id


def run_id_of(response: str) -> str:
    """The run behind a response's id."""
    return response.removeprefix(PREFIX)


def status_of_run(run: RunView) -> str:
    """The run's status in Responses' words."""
    match run.status:
        case RunStatus.QUEUED:
            return "queued"
        case RunStatus.COMPLETED:
            return "completed"
        case RunStatus.CANCELLED:
            return "cancelled"
        case RunStatus.FAILED | RunStatus.INDETERMINATE:
            return "failed"
        case _:
            return "in_progress"


def response_object(
    run: RunView, *, status: str | None = None, output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The response.

    Args:
        run: The run.
        status: Where it is, for whoever tells the story as it was; None: as it stands.
        output: Its items; None: the answer, where there is one.
    """
    facts, status = door_facts(run), status or status_of_run(run)
    ended = status in {"completed", "failed", "cancelled"}
    if output is None:
        output = [message_item(run, run.output)] if status == "completed" and run.output else []
    return {
        "id": response_id(run),
        "object": "response",
        "created_at": int(run.created_at.timestamp()),
        "completed_at": int(run.ended_at.timestamp()) if status == "completed" and run.ended_at else None,
        "status": status,
        "background": bool(facts.get("background", False)),
        "error": _error(run) if status in {"failed", "cancelled"} else None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": run.binding,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": facts.get("previous_response_id"),
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": bool(facts.get("store", True)),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": responses_usage(run) if ended else None,
        "user": facts.get("user"),
        "metadata": client_metadata(run),
    }


def _error(run: RunView) -> dict[str, str] | None:
    if run.terminal is None:
        return None
    fault = fault_of_run(run)
    return {"code": fault.code, "message": fault.message}


def message_item(run: RunView, text: str | None, *, status: str = "completed") -> dict[str, Any]:
    """The answer as an item; None: it has no content yet."""
    content = [] if text is None else [text_part(text)]
    return {
        "id": f"msg_{run.id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def text_part(text: str) -> dict[str, Any]:
    """A piece of text in an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(run: RunView, text: str | None) -> dict[str, Any]:
    """What went on, as an item; None: it has no text yet."""
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": f"rs_{run.id}", "type": "reasoning", "summary": summary, "encrypted_content": None}
