"""The parts of a run's result: review, checks, patch, delivery, cancel receipt."""

from __future__ import annotations

from pydantic import Field

from remit.contract._model import Model, Moment
from remit.contract._words import DeliveryMode, DeliveryStatus, GateVerdict, How, ReviewDecision


class Review(Model):
    """What the reviewer decided, bound to the content it looked at."""

    decision: ReviewDecision
    summary: str
    repairs: tuple[str, ...] = ()
    """Paths that the review stage itself changed."""
    flags: tuple[str, ...] = ()
    """What a person should look at, such as `protected:.github/workflows/ci.yml`."""
    content_hash: str | None = None
    """Hash of the checkout's changes at the moment of the decision; None without a workspace."""


class CheckResult(Model):
    """One check, before and after."""

    id: str
    base_exit: int | None = None
    """Exit code on the base; None when it couldn't be run there."""
    exit: int | None = None
    """Exit code on the result; None when it wasn't run."""
    ms: int | None = None
    """Duration on the result, in ms."""
    gate: GateVerdict = "skipped"
    flaky: bool = False
    """It was worse at first and no worse when it was run once more on the same files."""


class PatchSummary(Model):
    """The patch of a run; set whenever a checkout was opened, however the run ended."""

    sha256: str
    files: int
    insertions: int
    deletions: int
    reviewed: bool


class Delivery(Model):
    """What became of the patch."""

    mode: DeliveryMode
    status: DeliveryStatus
    ref: str | None = None
    """The branch, for mode `branch`."""


class CancelItem(Model):
    """One piece of work that a cancel reached."""

    work_id: str
    kind: str
    label: str
    how: How
    ms: int
    """From the cancel request to the end of this work."""
    pids: tuple[int, ...] | None = None


class CancelReceipt(Model):
    """The answer to a cancel: each piece of work, how it was stopped, and how fast."""

    requested_at: Moment
    by: str
    """A code of the terminal class `cancelled`."""
    reason: str | None = None
    complete: bool = False
    items: tuple[CancelItem, ...] = Field(default=())


class AbandonedWork(Model):
    """Work that couldn't be shown to have ended."""

    work_id: str
    kind: str
    label: str
    pids: tuple[int, ...] = ()
