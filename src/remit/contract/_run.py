"""The run as everybody sees it. The same keys are always present."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from remit.contract._limits import Limits
from remit.contract._model import Model, Moment
from remit.contract._results import (
    AbandonedWork,
    CancelReceipt,
    CheckResult,
    Delivery,
    PatchSummary,
    Review,
)
from remit.contract._terminal import Terminal
from remit.contract._usage import Usage
from remit.contract._words import Isolation, Profile, RunStatus, SandboxLevel


class RunWorkspace(Model):
    """Where a run works. What isn't known before preparation is None."""

    ref: str
    node_id: str | None = None
    base: str | None = None
    """`git:HEAD` or `git:HEAD+DIRTY`; `tree:HASH` outside git."""
    isolation: Isolation | None = None
    sandbox: SandboxLevel | None = None


class RunView(Model):
    """One run."""

    id: str
    session_id: str
    parent_run_id: str | None = None
    root_run_id: str
    continues: str | None = None
    binding: str
    profile: Profile
    status: RunStatus = RunStatus.QUEUED
    cancel_requested: bool = False
    created_at: Moment
    started_at: Moment | None = None
    deadline_at: Moment | None = None
    ended_at: Moment | None = None
    workspace: RunWorkspace | None = None
    limits: Limits
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    terminal: Terminal | None = None
    output: str | None = None
    review: Review | None = None
    checks: tuple[CheckResult, ...] = ()
    patch: PatchSummary | None = None
    delivery: Delivery | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    estimated_max_cost_usd: float | None = None
    cancel: CancelReceipt | None = None
    abandoned: tuple[AbandonedWork, ...] = ()
    queue_position: int | None = None
    """Which of the tenant's waiting runs goes on first (1), second ...; None: it doesn't wait for a place.

    It is so at the moment of the answer, and stands in no event.
    """
