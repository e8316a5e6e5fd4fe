"""Runs that a dead host left behind."""

from __future__ import annotations

from remit.contract import RunEnded, RunSettling, RunStatus, RunView, Terminal, UsageUpdated
from remit.errors import AlreadyDecided, OwnershipError
from remit.events import Event, NewEvent, terminal_type
from remit.primitives import Clock, format_time
from remit.runs._deliveries import ended_delivery
from remit.runs._loose_ends import close_loose_ends
from remit.runs._ports import RunStore, StoredRun
from remit.runs._salvage import Salvage, Salvaged
from remit.runs._states import Trigger, next_status
from remit.usage import LedgerRow, summarise

_PAGE = 500


async def sweep_dead_runs(
    store: RunStore, epoch: str, clock: Clock, *, salvage: Salvage | None = None
) -> tuple[RunView, ...]:
    """End every unfinished run of a dead host epoch `indeterminate/lost`, code `unproven`.

    Its usage is read all the same, its children's too: what was known of it when its host died stays on the
    bill. Children are ended before their parents, so that a parent's bill is that of its whole tree.

    Args:
        store: Where the runs are.
        epoch: The host that ends them.
        clock: Tells when.
        salvage: Reads what a run's checkout held, once its own host can't any more; None: nobody does.

    Returns:
        The runs as they ended, oldest first. A run that another host took up meanwhile isn't among them.
    """
    ended: list[RunView] = []
    for stored in reversed(await store.unfinished_of_dead_epochs()):
        claimed = await store.claim(epoch, run_id=stored.view.id, tenant=stored.tenant)
        if claimed is None:
            continue
        try:
            ended.append(await _end_lost(store, claimed, clock, salvage))
        except OwnershipError:
            continue
    return tuple(reversed(ended))


async def _end_lost(store: RunStore, stored: StoredRun, clock: Clock, salvage: Salvage | None) -> RunView:
    view, tenant = stored.view, stored.tenant
    terminal = Terminal.of("lost", "unproven")
    children = await store.children_of(view.id, tenant=tenant)
    events = await _read_log(store, stored)
    ends = close_loose_ends(events, children=[child.view for child in children], terminal=terminal)
    if view.status is not RunStatus.SETTLING and await _decide(
        store, stored, terminal, ends, last=events[-1]
    ):
        ends = ()
    below = [row for child in children for row in await _read_tree(store, child)]
    bill = summarise(await _read_rows(store, stored), below)
    left = Salvaged() if salvage is None or view.started_at is None else await salvage(stored)
    final = view.model_copy(
        update={
            "status": next_status(RunStatus.SETTLING, Trigger.LOSE),
            "ended_at": clock.now(),
            "terminal": terminal,
            "patch": left.patch or view.patch,
            "delivery": ended_delivery(view.delivery),
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
            *ends,
            NewEvent(type="usage.updated", payload=updated, work_id=view.id),
            NewEvent(type=terminal_type(terminal.kind), payload=RunEnded(run=final), work_id=view.id),
        ],
        artifacts=left.artifacts,
        tenant=tenant,
    )
    if left.undone is not None:  # by hand, before the run had an end that it could stand behind
        await store.log(view.id, "delivery.undone", {"mode": "apply", "paths": left.undone}, tenant=tenant)
    if left.problem is not None:
        await store.log(view.id, "checkout.left", {"message": left.problem}, tenant=stored.tenant)
    return final


async def _decide(
    store: RunStore, stored: StoredRun, terminal: Terminal, ends: tuple[NewEvent, ...], *, last: Event
) -> bool:
    """Close what is open, and decide. False: the dead host had decided; nothing was stored."""
    detail = f"its host died; the last thing that it stored was {last.type}, at {format_time(last.at)}"
    settling = RunSettling(kind=terminal.kind, class_=terminal.class_, code=terminal.code, detail=detail)
    event = NewEvent(type="run.settling", payload=settling, work_id=stored.view.id)
    try:
        await store.append(stored.view.id, stored.generation, [*ends, event], tenant=stored.tenant)
    except AlreadyDecided:
        return False
    return True


async def _read_log(store: RunStore, stored: StoredRun) -> tuple[Event, ...]:
    events: list[Event] = []
    while page := await store.read_events(
        stored.view.id, after=events[-1].seq or 0 if events else 0, limit=_PAGE, tenant=stored.tenant
    ):
        events += page
    return tuple(events)


async def _read_rows(store: RunStore, stored: StoredRun) -> list[LedgerRow]:
    attempts = await store.read_attempts(stored.view.id, tenant=stored.tenant)
    return [LedgerRow.of(stored.view.id, row.started, row.ended) for row in attempts]


async def _read_tree(store: RunStore, stored: StoredRun) -> list[LedgerRow]:
    """The ledger of a run and of all below it."""
    rows = await _read_rows(store, stored)
    for child in await store.children_of(stored.view.id, tenant=stored.tenant):
        rows += await _read_tree(store, child)
    return rows
