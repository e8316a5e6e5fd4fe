"""The tools as they are told to a client, and their arguments as they are read."""

from __future__ import annotations

from typing import Any, Final

import mcp.types
from pydantic import Field, StrictBool

from remit.contract import DeliveryMode, LimitRequest, Model, Profile, WorkspaceRequest
from remit.primitives import Ids

MAX_WAIT_MS: Final = 3_600_000
MAX_REASON_CHARS: Final = 1_000


class RunArguments(Model):
    """What `run` takes: fields of a request, and whether to wait."""

    prompt: str = Field(description="What is to be done, in words; all that the run should know.")
    binding: str | None = Field(default=None, description="Name of one of the host's bindings.")
    session_id: str | None = Field(
        default=None, description="Session of an earlier run: its requests and outputs are then known."
    )
    continues: str | None = Field(
        default=None, description="Id of an ended run whose checkout this one goes on with."
    )
    workspace: WorkspaceRequest | None = Field(default=None, description="Where to work.")
    profile: Profile | None = Field(default=None, description="What steps are taken.")
    model: str | None = Field(default=None, description="NAME:MODEL, where the binding lets callers choose.")
    instructions: str | None = Field(default=None, description="Standing instructions for every stage.")
    limits: LimitRequest | None = Field(default=None, description="Narrower limits than the binding's.")
    delivery: DeliveryMode | None = Field(
        default=None, description="What becomes of the changes; by default they are kept as a patch."
    )
    detach: StrictBool = Field(
        default=False, description="Answer at once, while the run goes on; `get_run` tells of it later."
    )

    def body(self, ids: Ids) -> dict[str, Any]:
        """The request, with an id of our own, so that it can be stopped whenever its caller leaves."""
        body = self.model_dump(mode="json", exclude={"detach"}, exclude_unset=True)
        return {**{name: value for name, value in body.items() if value is not None}, "id": ids.new("run")}


class GetRunArguments(Model):
    """What `get_run` takes."""

    run_id: str = Field(description="Id of the run.", max_length=128)
    wait_ms: int = Field(
        default=0, ge=0, le=MAX_WAIT_MS, description="How long to wait for its end, in milliseconds."
    )
    include_patch: StrictBool = Field(default=False, description="Whether to give its patch, a unified diff.")


class CancelRunArguments(Model):
    """What `cancel_run` takes."""

    run_id: str = Field(description="Id of the run.", max_length=128)
    reason: str | None = Field(default=None, max_length=MAX_REASON_CHARS, description="Why, for the record.")


_RUN_SHAPE: Final[dict[str, Any]] = {
    "type": "object",
    "description": "The run, as the host's HTTP API shows it.",
    "properties": {
        "id": {"type": "string"},
        "session_id": {"type": "string"},
        "status": {"type": "string"},
        "output": {"type": ["string", "null"]},
        "terminal": {"type": ["object", "null"]},
        "patch": {"type": ["object", "null"]},
        "cost_usd": {"type": ["number", "null"]},
    },
    "required": ["id", "session_id", "status", "output", "terminal", "patch", "cost_usd"],
}
_CANCEL_SHAPE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "changed": {"type": "boolean"},
        "run": {"type": "object"},
        "receipt": {"type": ["object", "null"]},
    },
    "required": ["changed", "run", "receipt"],
}


def tools() -> list[mcp.types.Tool]:
    """All three."""
    return [
        mcp.types.Tool(
            name="run",
            title="Run a coding request",
            description=(
                "Have a coding request done: it is planned, worked on in a sandboxed copy of the workspace, "
                "reviewed, checked, and ends with one result. It may take minutes; progress is told, and "
                "cancelling this call stops the run and everything that it started. The changes are kept as "
                "a patch unless the host says otherwise."
            ),
            input_schema=_schema_of(RunArguments),
            output_schema=_RUN_SHAPE,
            annotations=mcp.types.ToolAnnotations(read_only_hint=False, open_world_hint=True),
        ),
        mcp.types.Tool(
            name="get_run",
            title="Look at a run",
            description="How a run stands: status, output, checks, review, cost and, if wanted, its patch.",
            input_schema=_schema_of(GetRunArguments),
            output_schema=_RUN_SHAPE,
            annotations=mcp.types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        mcp.types.Tool(
            name="cancel_run",
            title="Stop a run",
            description="Stop a run and all that it started; the receipt says what was stopped, and how.",
            input_schema=_schema_of(CancelRunArguments),
            output_schema=_CANCEL_SHAPE,
            annotations=mcp.types.ToolAnnotations(
                read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        ),
    ]


def _schema_of(shape: type[Model]) -> dict[str, Any]:
    return shape.model_json_schema(mode="validation")
