"""What a request would become: said before anything is stored or spent."""

from __future__ import annotations

from typing import Literal

from remit.contract._model import Model, Money
from remit.contract._run import RunView
from remit.contract._words import DeliveryMode, Isolation, SandboxLevel, StageKind


class ModelPrice(Model):
    """What a model costs now, in USD for a million tokens; a longer request may be dearer."""

    input_usd_per_mtok: float
    output_usd_per_mtok: float
    cache_read_usd_per_mtok: float
    source: str
    """Where the price comes from: `config`, `free`, or the price book and its date."""


class FoundCheck(Model):
    """A check that would be run before and after; it hasn't been."""

    id: str
    command: str
    """As a person would type it."""
    why: str
    """Where it was found."""
    problem: str | None = None
    """Why it couldn't be run; None: nothing is known against it."""


class DryWorkspace(Model):
    """What the run would work on, and how confined."""

    base: str
    """The base as it would be pinned now."""
    isolation: Isolation
    sandbox: SandboxLevel
    checks: tuple[FoundCheck, ...]
    notes: tuple[str, ...]
    """What the caller should know."""


class DryRun(Model):
    """What a request would become; nothing was stored, and nothing spent."""

    would: Literal["start", "wait", "be_deferred"]
    """`wait`: in the queue, or for its session's turn. `be_deferred`: the host takes none now."""
    run: RunView
    delivery: DeliveryMode
    models: dict[StageKind, tuple[str, ...]]
    """Who would be asked, by stage, in order."""
    prices: dict[str, ModelPrice | None]
    """What each of these models costs; None: it isn't known."""
    max_cost_usd: Money | None
    """The money cap in force; None: none."""
    text_replaced: int
    """Characters of the prompt that can't be stored."""
    workspace: DryWorkspace | None = None
    """None: it works on none, or what is wrong with it is in `problem`."""
    problem: str | None = None
    """Why the workspace can't be made ready: the run would end `failed/workspace`. None: it can."""
