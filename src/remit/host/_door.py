"""A host as its doors see it: the same operations, for callers of any tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remit.admission import Binding, Caller
from remit.api import Cancelled, NodeRow, Places, ServedStore, WorkRow
from remit.contract import AuditFact, CancelReceipt, Delivery, DryRun, RunView, WorkKind
from remit.errors import NotFound, PreconditionFailed
from remit.host._admitting import admit
from remit.host._by_hand import ByHand, PatchPlace, deliver_by_hand, delivery_of
from remit.host._delivering import check_deliverable, check_discardable
from remit.host._live_work import LiveWork, run_of_work
from remit.host._previewing import preview
from remit.models import PoolSettings
from remit.node_agent import node_folder
from remit.primitives import Clock, Ids
from remit.requests import ParsedRequest
from remit.results import write_receipt
from remit.runs import (
    CancelBy,
    Feed,
    OperationContext,
    RunControl,
    Started,
    StoredRun,
    Tombstone,
    TurnStop,
    act_of,
    despite_cancel,
    id_of_name,
    name_in_host,
    name_outside,
    tell_run,
    with_position,
)
from remit.work import Metrics
from remit.workspaces import WorkspaceSettings

if TYPE_CHECKING:
    from remit.host._host import Host
    from remit.host._parts import Parts

_LOOK_UP_S: Final = 5.0
"""For a stop of what this host doesn't drive: it is a look into the store, or the burial of an id."""
_DELIVERED_WITHIN_MS: Final = 30_000
"""How long an answer waits for what came of an approved delivery; the run goes on all the same."""
_WHOLE: Final = frozenset({WorkKind.RUN, WorkKind.STAGE})


class HostDoor:
    """Implements `remit.api.ServedHost` on an open host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def _parts(self) -> Parts:
        return self._host._open_parts  # pyright: ignore[reportPrivateUsage] - one package

    # ---- what it is made of

    @property
    def epoch(self) -> str:
        """The id of this start of the host."""
        return self._host.epoch

    @property
    def status(self) -> str:
        """Where it is."""
        return self._host.status.value

    @property
    def residencies(self) -> Mapping[str, int]:
        """Why it can't be settled yet, by label."""
        return self._host.residencies

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        return self._host.clock

    @property
    def ids(self) -> Ids:
        """Where ids come from."""
        return self._host.ids

    @property
    def store(self) -> ServedStore:
        """Where runs and keys are kept."""
        return self._parts.store

    @property
    def feed(self) -> Feed:
        """What viewers follow."""
        return self._parts.feed

    @property
    def metrics(self) -> Metrics:
        """What the work registry has counted."""
        return self._parts.registry.metrics

    @property
    def places(self) -> Places:
        """How many runs go on and wait."""
        permits, settings = self._parts.admission.permits, self._host.config.host
        return Places(
            running=permits.running,
            queued=permits.queued,
            max_running=settings.max_running,
            max_queued=settings.max_queued,
        )

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """By public name."""
        return self._host.config.bindings

    @property
    def pools(self) -> Mapping[str, PoolSettings]:
        """By name."""
        return self._host.config.pools

    @property
    def workspaces(self) -> Mapping[str, WorkspaceSettings]:
        """Those of the local node, by ref."""
        return self._host.config.workspaces

    def nodes(self) -> tuple[NodeRow, ...]:
        """The one node that there is: that of this machine."""
        node = self._host.local_node
        return (
            NodeRow(
                id="local",
                alias=None,
                state=node.state.value,
                pid=node.pid,
                sandbox=None,
                isolation=None,
                workspaces=tuple(sorted(self.workspaces)),
            ),
        )

    async def running_calls(self, *, tenant: str) -> Mapping[str, tuple[int, ...]]:
        """The processes of a tenant's tool calls, on the node, by work id."""
        outside = {
            name_outside(tenant, row.work_id): row.work_id
            for row in self.all_work(tenant=tenant)
            if row.kind == WorkKind.RUN
        }
        calls = await self._host.local_node.running_calls()
        return {
            f"{outside[call.run_id]}.{call.stage_id}.{call.tool_call_id}": call.pids
            for call in calls
            if call.run_id in outside
        }

    # ---- runs

    def _context(self, caller: Caller) -> OperationContext:
        return OperationContext(
            host_epoch=self._host.epoch,
            residencies=self._host._residencies,  # pyright: ignore[reportPrivateUsage] - one package
            principal=caller.key_id or "runtime_host",
            connection="http",
            caller=caller,
        )

    async def start(self, parsed: ParsedRequest, *, caller: Caller, idempotency_key: str | None) -> Started:
        """Through the two operations that every door goes through; see `ServedHost`."""
        started = await admit(
            self._parts,
            parsed,
            run_id=parsed.request.id or self._host.ids.new("run"),
            context=self._context(caller),
            idempotency_key=idempotency_key,
        )
        stored = await self._get(started.turn.run_id, caller.tenant)
        return Started(run=stored, created=not started.joined)

    async def dry_run(self, parsed: ParsedRequest, *, caller: Caller) -> DryRun:
        """What a request would become; see `ServedHost`."""
        return await preview(self._host, self._parts, parsed, caller=caller)

    async def _get(self, run_id: str, tenant: str) -> StoredRun:
        stored = await self._parts.store.find_run(run_id, tenant=tenant)
        if stored is None:
            raise NotFound(f"no run `{run_id}`", param="id")
        return stored

    def placed(self, run: RunView, *, tenant: str) -> RunView:
        """The run, with its place in the queue; see `ServedHost`."""
        return with_position(run, self._parts.admission.permits, tenant=tenant)

    async def wait_ended(self, run_id: str, *, tenant: str, wait_ms: int) -> None:
        """Return once the run's terminal is durable, or the time has run out."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                control = self._parts.engine.find_control(run_id, tenant=tenant)
                if control is not None:
                    await control.durable.wait()
                    return
                await self._wait_elsewhere(run_id, tenant)
        except TimeoutError:
            return

    async def _wait_elsewhere(self, run_id: str, tenant: str) -> None:
        """The end of a run that another process drives."""
        while True:
            stored = await self._parts.store.find_run(run_id, tenant=tenant)
            if stored is None or stored.view.status.ended:
                return
            await self._parts.store.wait_for_events(run_id, after=stored.last_seq, tenant=tenant)

    async def cancel(
        self,
        run_id: str,
        *,
        caller: Caller,
        by: CancelBy = "caller",
        reason: str | None,
        tombstone: bool,
        wait_ms: int,
    ) -> Cancelled | Tombstone:
        """Stop a run; see `ServedHost`. Cancellation: the cancel stands; only the wait ends."""
        context, dispatcher, tenant = self._context(caller), self._parts.dispatcher, caller.tenant
        stop = TurnStop(session_id=run_id, turn_id=run_id, by=by, reason=reason, tombstone=tombstone)
        control = self._parts.engine.find_control(run_id, tenant=tenant)
        changed = dispatcher.ask_to_stop(stop, context)
        wait_s = wait_ms / 1000 if control is not None else max(_LOOK_UP_S, wait_ms / 1000)
        try:
            async with asyncio.timeout(wait_s):
                (await dispatcher.stop_turn(stop, context)).get()
        except TimeoutError:
            pass
        stored = await self._parts.store.find_run(run_id, tenant=tenant)
        if stored is not None:
            return Cancelled(changed=changed, run=stored.view, receipt=self._receipt(stored, control))
        dead = await self._parts.store.find_tombstone(run_id, tenant=tenant)
        if dead is None:
            raise NotFound(f"no run `{run_id}`", param="id")
        return dead

    def _receipt(self, stored: StoredRun, control: RunControl | None) -> CancelReceipt | None:
        """The receipt as far as it has got."""
        if stored.view.cancel is not None or control is None or control.asked is None:
            return stored.view.cancel
        session = name_in_host(stored.tenant, stored.view.session_id)
        return write_receipt(
            self._parts.registry.closed_items(session, stored.view.id),
            requested_at=control.asked.at,
            by=control.asked.by,
            reason=control.asked.reason,
            complete=False,
        )

    async def acknowledge(self, run_id: str, *, caller: Caller, accepted: bool) -> bool:
        """Answer a run that waits for it; see `ServedHost`."""
        control = self._parts.engine.find_control(run_id, tenant=caller.tenant)
        if control is None or not control.waits_for_acknowledgement:
            return False
        outcome = "accepted" if accepted else "refused"
        act = act_of(caller, "result.answered", f"run {run_id}", outcome=outcome)
        await self.record(act, tenant=caller.tenant)
        return control.acknowledge(accepted)

    async def record(self, act: AuditFact, *, tenant: str) -> None:
        """Put an act on the audit record; see `ServedHost`."""
        await self._parts.store.record(act, tenant=tenant)

    async def tell(self, run_id: str, *, tenant: str, text: str) -> None:
        """Have a text read before the run's next round; see `ServedHost`."""
        await tell_run(run_id, text, store=self._parts.store, driver=self._parts.engine, tenant=tenant)

    # ---- deliveries by hand

    async def deliver(
        self,
        run: StoredRun,
        *,
        caller: Caller,
        unreviewed: bool,
        allow_protected: bool,
        branch: str | None = None,
    ) -> Delivery:
        """Let a run that waits for it deliver, or deliver the patch of an ended one; see `ServedHost`.

        Cancellation: it is applied whole, or not.
        """
        if not run.view.status.ended:
            return await self._approve(run, True, caller=caller)
        history = await self._parts.store.read_history(run.view.id, tenant=run.tenant)
        binding = self.bindings.get(run.view.binding)
        check_deliverable(run, history, binding, unreviewed=unreviewed, allow_protected=allow_protected)
        workspace = self.workspaces.get(run.view.workspace.ref) if run.view.workspace is not None else None
        if workspace is None:
            raise NotFound("the run's workspace isn't configured here any more", param="id")
        wanted = ByHand(
            branch=branch,
            unreviewed=unreviewed,
            allow_protected=allow_protected,
            by=caller.key_id or "hand",
            origin=caller.origin,
        )
        place = PatchPlace(
            node_data=self._node_data(),
            root=workspace.root,
            protected=workspace.protected,
            frozen=workspace.freeze,
            environment=self._host.config.environment,
        )
        delivering = deliver_by_hand(run, wanted, place=place, log=self._parts.store, now=self.clock.now())
        return delivery_of(await despite_cancel(delivering), wanted)

    async def discard(self, run: StoredRun, *, caller: Caller) -> Delivery:
        """Let the patch never be applied; see `ServedHost`."""
        if not run.view.status.ended:
            return await self._approve(run, False, caller=caller)
        history = await self._parts.store.read_history(run.view.id, tenant=run.tenant)
        check_discardable(run, history)
        data = {"by": caller.key_id or "hand", **({} if caller.origin is None else {"origin": caller.origin})}
        await self._parts.store.log(run.view.id, "delivery.discarded", data, tenant=run.tenant)
        return Delivery(mode="patch", status="discarded")

    async def _approve(self, run: StoredRun, approved: bool, *, caller: Caller) -> Delivery:
        """Give a run the word that it waits for, and wait for what comes of it.

        Raises:
            PreconditionFailed: It doesn't wait for one.
        """
        control = self._parts.engine.find_control(run.view.id, tenant=run.tenant)
        if control is None or not control.waits_for_approval:
            raise _not_waiting()
        act = act_of(caller, "delivery.approved" if approved else "delivery.discarded", f"run {run.view.id}")
        await self.record(act, tenant=run.tenant)
        if not control.approve(approved):
            raise _not_waiting()
        await self.wait_ended(run.view.id, tenant=run.tenant, wait_ms=_DELIVERED_WITHIN_MS)
        delivery = (await self._get(run.view.id, run.tenant)).view.delivery
        assert delivery is not None, "it has had one since it waited"
        return delivery

    def _node_data(self) -> Path:
        return node_folder(self._host.config.data).resolve()

    # ---- live work

    @property
    def _live_work(self) -> LiveWork:
        return LiveWork(self._parts.registry)

    def work_page(
        self, run: RunView, *, tenant: str, after: str | None, limit: int
    ) -> tuple[tuple[WorkRow, ...], str | None]:
        """A run's live work; see `ServedHost`."""
        return self._live_work.page(run, tenant=tenant, after=after, limit=limit)

    def all_work(self, *, tenant: str) -> tuple[WorkRow, ...]:
        """The live work of a tenant, by work id."""
        return self._live_work.all(tenant=tenant)

    def cancel_work(self, work_id: str, *, tenant: str) -> WorkRow | None:
        """Flag one piece of work; see `ServedHost`. A run, or a stage of it, ends the run: `operator`."""
        found = self._live_work.find(work_id, tenant=tenant)
        if found is None:
            return None
        session, row = found
        if row.kind not in _WHOLE:
            self._parts.registry.cancel(session, row.work_id)
            return row
        reason = f"its {row.kind} was stopped"
        stop = TurnStop(
            session_id=id_of_name(session), turn_id=run_of_work(work_id), by="operator", reason=reason
        )
        self._parts.dispatcher.ask_to_stop(stop, self._context(Caller(tenant=tenant)))
        return row


def _not_waiting() -> PreconditionFailed:
    return PreconditionFailed("the run goes on, and doesn't wait for a word on its patch", param="id")
