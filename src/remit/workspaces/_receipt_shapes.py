"""What stands in a receipt, and what is asked of the store that keeps them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from remit.contract import Model, ToolStatus

__all__ = ["Artifact", "CallKey", "DeliveryReceipt", "Intent", "Outcome", "Receipted"]

Effect = Literal["read", "write", "command"]
CallKey = tuple[str, str, str]
"""Run, stage and tool call id: tool call ids are unique within a stage only."""


class Outcome(Model):
    """What came of a tool call, as it is kept and answered."""

    status: ToolStatus
    content: str = ""
    """What the model is shown."""
    exit_code: int | None = None
    truncated: bool = False
    duration_ms: int = 0
    changed: tuple[str, ...] = ()
    """Paths from the root that a file tool changed."""
    command: str | None = None
    """The command line; None for file tools."""
    output_bytes: int = 0
    """Size of the whole text kept on the node; 0 where `content` is all there is."""
    leftovers: tuple[str, ...] = ()
    """Processes that a command left running, and that were stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A tool call about to be made."""

    run_id: str
    stage_id: str
    tool_call_id: str
    name: str
    arguments: str
    effect: Effect
    generation: int

    @property
    def key(self) -> CallKey:
        """What the receipt is filed under."""
        return (self.run_id, self.stage_id, self.tool_call_id)

    @property
    def arguments_sha256(self) -> str:
        """Hash of the argument text as the model wrote it."""
        return hashlib.sha256(self.arguments.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Receipted:
    """An outcome with its receipt."""

    receipt_id: str
    outcome: Outcome
    repeated: bool
    """Whether it had been done before this request."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named text of a run."""

    name: str
    text: str
    sha256: str


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    """What is known of the delivery of one patch."""

    state: Literal["new", "started", "ended"]
    """`new`: noted just now, go ahead; `started`: begun before, perhaps by a process that died."""
    result: str | None
    """JSON of what came of it, once ended."""
