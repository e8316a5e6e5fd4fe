"""Runs that a dead host left behind."""

from __future__ import annotations

from remit.contract import RunEnded, RunSettling, RunStatus, RunView, Terminal, UsageUpdated
from remit.errors import AlreadyDecided, OwnershipError
from remit.events import NewEvent, terminal_type
from remit.primitives import Clock
from remit.runs._ports import RunStore, StoredRun
from remit.runs._states import Trigger, next_status
from remit.usage import summarise_attempts


async def sweep_dead_runs(store: RunStore, epoch: str, clock: Clock) -> tuple[RunView, ...]:
    """End every unfinished run of a dead host epoch `indeterminate/lost`, code `unproven`.

    Its usage is read all the same: what was known of it when its host died stays on the bill.

    Returns:
        The runs as they ended. A run that another host took up meanwhile isn't among them.
    """
    ended: list[RunView] = []
    for stored in await store.unfinished_of_dead_epochs():
        claimed = await store.claim(epoch, run_id=stored.view.id, tenant=stored.tenant)
        if claimed is None:
            continue
        try:
            ended.append(await _end_lost(store, claimed, clock))
        except OwnershipError:
            continue
    return tuple(ended)


async def _end_lost(store: RunStore, stored: StoredRun, clock: Clock) -> RunView:
    view = stored.view
    terminal = Terminal.of("lost", "unproven")
    if view.status is not RunStatus.SETTLING:
        await _decide(store, stored, terminal)
    attempts = await store.read_attempts(view.id, tenant=stored.tenant)
    bill = summarise_attempts([(row.started, row.ended) for row in attempts])
    final = view.model_copy(
        update={
            "status": next_status(RunStatus.SETTLING, Trigger.LOSE),
            "ended_at": clock.now(),
            "terminal": terminal,
            "usage": bill.usage,
            "cost_usd": bill.cost_usd,
            "estimated_max_cost_usd": bill.estimated_max_cost_usd,
        }
    )
    updated = UsageUpdated(
        usage=bill.usage, cost_usd=bill.cost_usd, estimated_max_cost_usd=bill.estimated_max_cost_usd
    )
    await store.finish(
        view.id,
        stored.generation,
        [
            NewEvent(type="usage.updated", payload=updated, work_id=view.id),
            NewEvent(type=terminal_type(terminal.kind), payload=RunEnded(run=final), work_id=view.id),
        ],
        tenant=stored.tenant,
    )
    return final


async def _decide(store: RunStore, stored: StoredRun, terminal: Terminal) -> None:
    settling = RunSettling(kind=terminal.kind, class_=terminal.class_, code=terminal.code)
    event = NewEvent(type="run.settling", payload=settling, work_id=stored.view.id)
    try:
        await store.append(stored.view.id, stored.generation, [event], tenant=stored.tenant)
    except AlreadyDecided:
        return  # the dead host had decided; only its terminal is missing
