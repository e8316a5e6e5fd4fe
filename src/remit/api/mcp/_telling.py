"""A run as the answer of a tool: words for the model that asked, the whole of it for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp.types

from remit.contract import RunView
from remit.errors import RemitError
from remit.primitives import clean_text

MAX_PATCH_CHARS: Final = 256 * 1024


def run_answer(view: RunView, *, patch: str | None = None, waited: bool = True) -> mcp.types.CallToolResult:
    """The run. It is an error where it has ended without being completed.

    Args:
        view: The run.
        patch: Its patch, where it was asked for and there is one.
        waited: Whether its end was waited for.
    """
    texts = [_words(view, waited=waited)]
    if patch:
        cut = len(patch) - MAX_PATCH_CHARS
        texts.append(patch if cut <= 0 else f"{patch[:MAX_PATCH_CHARS]}\n({cut} more characters are cut)\n")
    failed = view.terminal is not None and view.terminal.kind != "completed"
    return _result(texts, view.model_dump(mode="json", by_alias=True), is_error=failed)


def cancel_words(answer: Mapping[str, Any]) -> mcp.types.CallToolResult:
    """What a cancel did."""
    run = answer["run"]
    if not answer["changed"]:
        text = f"Run {run['id']} is {run['status']}; the cancel changed nothing."
    else:
        text = f"Run {run['id']} is {run['status']}."
    return _result([text], dict(answer), is_error=False)


def error_answer(error: RemitError) -> mcp.types.CallToolResult:
    """Why a call wasn't done, so that the model that asked can do better."""
    shown = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return _result([f"{error.code}: {error.message}"], {"error": shown}, is_error=True)


def _words(view: RunView, *, waited: bool) -> str:
    if view.terminal is None:
        end = "`get_run` with `wait_ms` waits for its end." if not waited else "It goes on."
        return f"Run {view.id} is {view.status.value}. {end}"
    terminal = view.terminal
    lines: list[str] = []
    if terminal.kind == "completed":
        lines += [view.output or "", ""]
        lines.append(f"Run {view.id} is completed.")
    else:
        lines.append(f"Run {view.id} is {terminal.kind} ({terminal.class_}/{terminal.code}).")
        lines.append(terminal.message or "")
    if view.patch is not None and view.patch.files:
        mode = "none" if view.delivery is None else f"{view.delivery.mode}, {view.delivery.status}"
        lines.append(
            f"Changes: {view.patch.files} files, +{view.patch.insertions} -{view.patch.deletions} "
            f"(delivery: {mode}). `get_run` with `include_patch` shows them."
        )
    lines += [f"Check {check.id}: exit {check.exit} ({check.gate})." for check in view.checks]
    if view.cost_usd is not None:
        lines.append(f"Cost: ${view.cost_usd:.4f}.")
    return "\n".join(lines).strip()


def _result(texts: list[str], structured: dict[str, Any], *, is_error: bool) -> mcp.types.CallToolResult:
    content: list[mcp.types.ContentBlock] = [
        mcp.types.TextContent(type="text", text=clean_text(text)[0]) for text in texts
    ]
    return mcp.types.CallToolResult(content=content, structured_content=structured, is_error=is_error)
