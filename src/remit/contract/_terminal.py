"""The single end of a run: kind, class, code, and one fixed sentence per code."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from remit.contract._model import Model

TerminalKind = Literal["completed", "failed", "cancelled", "indeterminate"]
TerminalClass = Literal[
    "provider",
    "budget",
    "timeout",
    "workspace",
    "invalid_output",
    "rejected",
    "internal",
    "cancelled",
    "usage",
    "lost",
]

CODES: dict[TerminalClass, dict[str, str]] = {
    "provider": {
        "rate_limited": "The provider refused requests because of its rate limit.",
        "auth": "The provider refused the credentials.",
        "unavailable": "The provider couldn't be reached or kept failing.",
        "context_length": "The request was longer than the model's context window.",
        "content_filter": "The provider's content filter withheld the answer.",
        "refusal": "The model refused to answer.",
        "empty_result": "The model answered with nothing.",
        "protocol": "The provider's answer didn't follow its protocol.",
        "cut": "The provider cut its answer short.",
    },
    "budget": {
        "wall_clock": "The request's time ran out.",
        "queue": "The run waited in the queue longer than it was allowed to.",
        "tool_rounds": "The stage used all its tool rounds without an answer.",
        "tokens": "The token limit was reached.",
        "cost": "The money limit was reached.",
        "children": "The limit of child runs was reached.",
        "working_time": "The limit of working time was reached.",
    },
    "timeout": {
        "plan": "The plan stage's time ran out.",
        "work": "The work stage's time ran out.",
        "review": "The review stage's time ran out.",
    },
    "workspace": {
        "unavailable": "The workspace couldn't be made ready.",
        "lost": "The node that held the checkout was lost.",
        "storage_full": "The disk is full.",
        "refused": "The node refused what the run needs.",
        "delivery_refused": "The result wasn't delivered because delivery was refused.",
        "delivery_conflict": "The result wasn't applied because the tree had changed meanwhile.",
    },
    "invalid_output": {
        "plan": "The plan stage gave no valid answer.",
        "work": "The work stage gave no valid answer.",
        "review": "The review stage gave no valid answer.",
    },
    "rejected": {
        "rejected": "The review rejected the work.",
        "revisions_exhausted": "The review asked for more revisions than are allowed.",
        "checks_failed": "The workspace's checks are worse than before, or fail where all must pass.",
    },
    "internal": {"invariant": "Remit broke a rule of its own."},
    "cancelled": {
        "caller": "The caller cancelled the run.",
        "operator": "An operator cancelled the run.",
        "client_disconnected": "The client hung up.",
        "deadline": "The caller's own deadline passed.",
        "drain": "The host shut down before the run could end.",
    },
    "usage": {
        "unreadable_usage_record": "The usage record couldn't be read.",
        "pending_usage_repair": "The usage record is still being repaired.",
        "partial_attempt_usage": "The usage of an attempt is only partly known.",
        "missing_attempt_usage": "The usage of an attempt isn't known.",
    },
    "lost": {
        "unproven": "It can't be proven how the run ended.",
        "not_stopped": "Work of the run couldn't be stopped.",
        "not_admitted": "The run was aborted while its session was being created.",
    },
}
"""Every class with its codes, and the one sentence that goes with each."""

_FAILED: frozenset[TerminalClass] = frozenset(
    {"provider", "budget", "timeout", "workspace", "invalid_output", "rejected", "internal"}
)

CLI_EXIT: dict[TerminalClass | None, int] = {
    None: 0,
    "provider": 1,
    "workspace": 1,
    "invalid_output": 1,
    "internal": 1,
    "budget": 3,
    "timeout": 3,
    "cancelled": 4,
    "rejected": 5,
    "usage": 6,
    "lost": 6,
}
"""What `remit run` exits with, by the terminal's class (None: completed)."""


class LimitHit(Model):
    """The limit that ended a run."""

    kind: str
    """The limit's name, as in `Limits`."""
    value: float | int | None = None
    """What was reached or asked for, in the limit's own unit."""
    cap: float | int | None = None
    """The limit, in its own unit."""


class Terminal(Model):
    """How a run ended."""

    kind: TerminalKind
    class_: TerminalClass | None = Field(default=None, validation_alias="class", serialization_alias="class")
    """None when completed."""
    code: str | None = None
    message: str | None = None
    stage: str | None = None
    """The stage id in which it happened; None outside the stages."""
    limit: LimitHit | None = None

    @classmethod
    def completed(cls) -> Terminal:
        """The one good end."""
        return cls(kind="completed")

    @classmethod
    def of(
        cls, class_: TerminalClass, code: str, *, stage: str | None = None, limit: LimitHit | None = None
    ) -> Terminal:
        """The terminal of a class and code, with its kind and its fixed sentence.

        Raises:
            KeyError: The class has no such code.
        """
        kind: TerminalKind = (
            "failed" if class_ in _FAILED else "cancelled" if class_ == "cancelled" else "indeterminate"
        )
        return cls(kind=kind, class_=class_, code=code, message=CODES[class_][code], stage=stage, limit=limit)
