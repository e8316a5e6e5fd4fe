"""Opens, drives and closes a host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, get_args

from remit.admission import Caller
from remit.api import ServedHost
from remit.config import Config
from remit.contract import DeliveryMode, DryRun, RunRequest, RunView
from remit.errors import MisuseError
from remit.host._admitting import admit
from remit.host._asking import Asked, check_asked, check_times
from remit.host._parts import HostSettings, Parts, open_parts
from remit.host._previewing import preview
from remit.host._run import CancelOutcome, Reach, Run, checked_run_id, stop_of
from remit.host._salvaging import salvage_for
from remit.host._states import HostStatus, HostTrigger, next_host_status
from remit.host._watching import OnEvent, Watch
from remit.node_agent import EmbeddedNode, LocalNode
from remit.nodes import AskingLink
from remit.primitives import (
    Clock,
    Ids,
    SystemClock,
    SystemIds,
    check_flag,
    check_has,
    check_length,
)
from remit.runs import (
    CancelAsked,
    CancelBy,
    Deadline,
    HostedOperations,
    HostedRun,
    OperationContext,
    RunControl,
    RunStore,
    RunTimes,
    Scope,
    Tombstone,
    despite_cancel,
    no_run,
    read_newest_view,
    sweep_dead_runs,
    with_position,
)
from remit.work import Residencies, WorkRegistry


class Host:
    """A process that admits, runs and settles. It is opened once, by `async with`, and belongs to that loop.

    Args:
        config: The settings in force.
        clock: Where time comes from.
        ids: Where ids come from.
        times: How long the parts of an end may take; None: for a host that lives as long as its caller.
        door_delivery: What a request gets that says nothing of delivery.
        drain_ms: How long what runs may go on when the host is closed; then it is cancelled, code `drain`.
        single_run: Whether the host was made for one run: then a cancel of it, and a hosted execution that is
            aborted or can't be settled, drain the host.
        node_process: Whether the node of this machine gets a process of its own. It costs half a second at
            the start, a fraction of a millisecond a call and some 35 MB; then what the node does holds up
            no request, and a node that dies takes its runs along, not the host.

    Raises:
        MisuseError: One of these isn't what it should be; `param` names it.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        times: RunTimes | None = None,
        door_delivery: DeliveryMode = "patch",
        drain_ms: int = 0,
        single_run: bool = False,
        node_process: bool = False,
    ) -> None:
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise MisuseError("a host is made from a Config: see `load_config`", param="config")
        if clock is not None:
            check_has("clock", clock, "now", "monotonic", "sleep")
        if ids is not None:
            check_has("ids", ids, "new")
        if times is not None:
            check_times(times)
        check_length("drain_ms", drain_ms)
        check_flag("single_run", single_run)
        check_flag("node_process", node_process)
        if door_delivery not in get_args(DeliveryMode):
            modes = ", ".join(get_args(DeliveryMode))
            raise MisuseError(f"a delivery is one of {modes}", param="door_delivery")
        self.config = config
        self.clock = clock if clock is not None else SystemClock()
        self.ids = ids if ids is not None else SystemIds()
        self.single_run = single_run
        self.swept: tuple[RunView, ...] = ()
        """Runs of dead hosts that were ended when this one opened."""
        self._drain_ms = drain_ms
        self._settings = HostSettings(
            config=config,
            clock=self.clock,
            ids=self.ids,
            times=times if times is not None else RunTimes(link_grace_ms=0),
            door_delivery=door_delivery,
            node_process=node_process,
        )
        self._residencies = Residencies()
        self._status = HostStatus.STARTING
        self._stack: AsyncExitStack | None = None
        self._parts: Parts | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise MisuseError("a host is opened once: make another one")
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            data = self.config.make_data()
            self._parts = await open_parts(
                stack,
                self._settings,
                data=data,
                residencies=self._residencies,
                on_stop=self._note_stop,
            )
            self._move(HostTrigger.OPEN)
            left = await self._parts.store.unfinished_of_dead_epochs()
            self.swept = await sweep_dead_runs(
                self._parts.store,
                self._parts.epoch,
                self.clock,
                salvage=salvage_for(self.config, self._parts),
            )
            if not self.single_run:
                ended = {view.id for view in self.swept}
                self._parts.webhooks.adopt([stored for stored in left if stored.view.id in ended])
            self._move(HostTrigger.RECOVER)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await self.drain(within_ms=self._drain_ms)
        finally:
            self._end_all()  # where the wait was cut short
            self._parts = None
            await stack.aclose()

    def _move(self, trigger: HostTrigger) -> None:
        self._status = next_host_status(self._status, trigger)

    def _note_stop(self) -> None:
        """A run was stopped: where the host was made for it, nothing else is to come."""
        if self.single_run:
            self.request_drain()

    @property
    def status(self) -> HostStatus:
        """Where the host is: starting, recovering, ready, draining."""
        return self._status

    @property
    def epoch(self) -> str:
        """The id of this start of the host."""
        return self._open_parts.epoch

    @property
    def residencies(self) -> Mapping[str, int]:
        """Why the host can't be settled yet: how many there are of each label."""
        return self._residencies.by_label()

    def request_drain(self) -> None:
        """Take no more work. Waits for nothing, and ends nothing."""
        self._open_parts.admission.drain()
        self._move(HostTrigger.DRAIN)

    async def drain(self, *, within_ms: int | None = None) -> None:
        """Take no more work, and return when all that runs has ended.

        Args:
            within_ms: How long it may go on; what still runs then is ended `cancelled`, code `drain`.
                None: for as long as it takes.

        Cancellation: the host goes on draining; what runs goes on.
        """
        parts = self._open_parts
        if within_ms is not None:
            check_length("within_ms", within_ms)
        self.request_drain()
        try:
            async with asyncio.timeout(None if within_ms is None else max(0, within_ms) / 1000):
                await self._wait_all_ended(parts)
        except TimeoutError:
            self._end_all()
            await self._residencies.wait_gone("start")
            self._end_all()  # what was being admitted meanwhile
            await self._wait_all_ended(parts)

    async def _wait_all_ended(self, parts: Parts) -> None:
        await self._residencies.wait_all_drained()
        while controls := parts.engine.controls:
            for control in controls:
                await control.ended.wait()
            await asyncio.sleep(0)  # what has ended is forgotten a step later
            await self._residencies.wait_all_drained()

    def _end_all(self) -> None:
        """Ask all that runs to end, whoever's it is. Waits for nothing."""
        if self._parts is not None:
            now, monotonic = self.clock.now(), self.clock.monotonic()
            for control in self._parts.engine.controls:
                control.ask(CancelAsked(by="drain", reason=None, at=now, at_monotonic=monotonic))

    # ---- runs

    async def start(
        self,
        request: RunRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        on_event: OnEvent | None = None,
        scope: Scope | None = None,
        deadline: Deadline | None = None,
    ) -> Run:
        """Admit a run; returns once it is stored. What happens to it later shows in its events and its end.

        A request with the id or key of an earlier, equal one gives the earlier one's run.

        Args:
            request: What is asked.
            idempotency_key: Stands for this request.
            on_event: Told of each event. Where it raises, this run ends cancelled, and `wait` raises that
                with the callback's error as its cause.
            scope: The caller's own bounds: when it ends, the run is cancelled.
            deadline: The same as a scope with this deadline: the run ends cancelled, code `deadline`.

        Raises:
            MisuseError: The call itself is wrong.
            RequestError: The request must be changed, or the settings must; nothing was stored.
            AdmissionError: Not now; nothing was stored.
            IdempotencyConflict: Its id or key was used for another request.
            RunCancelled: The scope had ended before; nothing was stored. `RunExpired` where it had expired.
            StorageError: It couldn't be stored.

        Cancellation: the run is stored and goes on, or it was never admitted.
        """
        return await self._start(check_asked(request, idempotency_key, on_event, scope, deadline, self.clock))

    async def dry_run(self, request: RunRequest | Mapping[str, Any]) -> DryRun:
        """What a request would become: models and prices, limits, base, checks. Nothing is stored or spent.

        Raises:
            MisuseError: The host is closed.
            RequestError: It must be changed, or the settings must.
        """
        asked = check_asked(request, None, None, None, None, self.clock)
        return await preview(self, self._open_parts, asked.parsed, caller=Caller())

    async def run(
        self,
        request: RunRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        on_event: OnEvent | None = None,
        scope: Scope | None = None,
        deadline: Deadline | None = None,
    ) -> RunView:
        """Start a run and wait until it has completed, as one call that owns it.

        The arguments, and what is raised, are those of `start` and of `Run.wait`.

        Cancellation: the run is cancelled with the call; the cancel is raised once everything has ended.
        """
        asked = check_asked(request, idempotency_key, on_event, scope, deadline, self.clock)
        parts, run_id = self._open_parts, asked.parsed.request.id or self.ids.new("run")
        try:
            return await (await self._start(asked, run_id)).wait()
        except asyncio.CancelledError:
            stop = stop_of(run_id, by="caller", reason="the task that waited for it was cancelled")
            await despite_cancel(parts.dispatcher.stop_turn(stop, self._context()))
            raise

    async def _start(self, asked: Asked, run_id: str | None = None) -> Run:
        parts = self._open_parts
        run_id = run_id or asked.parsed.request.id or self.ids.new("run")
        started = await admit(
            parts,
            asked.parsed,
            run_id=run_id,
            context=self._context(),
            idempotency_key=asked.idempotency_key,
        )
        control = parts.engine.find_control(started.turn.run_id)
        watch: Watch | None = None
        if control is not None and asked.scope is not None:
            self._bind(asked.scope, control, started.turn.run_id)
        if asked.on_event is not None:
            watch = self._watch(parts, started.turn.run_id, asked.on_event)
        return Run(self._reach, started.turn.run_id, watch=watch)

    def _bind(self, scope: Scope, control: RunControl, run_id: str) -> None:
        """When the scope ends, so does the run; when the run has ended, nobody listens any more."""
        run = Run(self._reach, run_id)
        stop_listening = scope.on_abort(lambda end: run.cancel_nowait(by=end.code, reason=end.reason))
        control.when_ended(stop_listening)

    def _watch(self, parts: Parts, run_id: str, on_event: OnEvent) -> Watch:
        return parts.watchers.add(
            run_id,
            events=parts.feed.follow(run_id),
            on_event=on_event,
            stop=lambda reason: Run(self._reach, run_id).cancel_nowait(reason=reason),
        )

    async def find_run(self, run_id: str) -> RunView | None:
        """A run as it stands now; None when there is none of that id."""
        parts = self._open_parts
        stored = await parts.store.find_run(checked_run_id(run_id))
        if stored is None:
            return None
        return with_position(await read_newest_view(parts.store, stored.view), parts.admission.permits)

    def open_run(self, run_id: str) -> Run:
        """The handle of a run that was started before. Nothing is looked up: `get_run` does."""
        self._reach()
        return Run(self._reach, checked_run_id(run_id))

    async def get_run(self, run_id: str) -> Run:
        """The handle of a run that was started before, by whichever host.

        Raises:
            NotFound: There is no such run.
        """
        if await self.find_run(run_id) is None:
            raise no_run(run_id)
        return Run(self._reach, run_id)

    async def cancel(
        self, run_id: str, *, by: CancelBy = "caller", reason: str | None = None, tombstone: bool = False
    ) -> CancelOutcome | Tombstone:
        """Stop a run by its id; see `Run.cancel`.

        Args:
            run_id: The run.
            by: On whose account.
            reason: The caller's own words.
            tombstone: Whether an id that no run has is to be dead for ever: then a start with it answers a
                run that is cancelled, and this answers the tombstone.

        Raises:
            NotFound: There is no such run, and no tombstone was asked for.
        """
        reach, stop = self._reach(), stop_of(run_id, by=by, reason=reason, tombstone=tombstone)
        changed = reach.dispatcher.ask_to_stop(stop, reach.context)
        (await reach.dispatcher.stop_turn(stop, reach.context)).get()
        view = await self.find_run(run_id)
        if view is not None:
            return CancelOutcome(changed=changed, run=view)
        dead = await reach.store.find_tombstone(run_id)
        if dead is None:
            raise no_run(run_id)
        return dead

    def hosted(self) -> HostedRun:
        """A runner of hosted executions on this host: one input in, one of two results out, never a throw."""
        parts, residencies = self._open_parts, Residencies(parent=self._residencies)
        return HostedRun(
            parts.dispatcher,
            OperationContext(host_epoch=parts.epoch, residencies=residencies),
            drain=self.request_drain if self.single_run else None,
            wait_execution_drained=residencies.wait_drained,
            wait_all_drained=residencies.wait_all_drained,
            clock=self.clock,
        )

    def door(self) -> ServedHost:
        """The host as its doors see it, for `remit.api.App`: callers of any tenant, each with a key."""
        from remit.host._door import HostDoor  # noqa: PLC0415 - only a host that is served needs it

        self._open_parts  # noqa: B018 - raises where the host isn't open
        return HostDoor(self)

    # ---- what it holds, to be looked at

    @property
    def operations(self) -> HostedOperations:
        """The five operations of hosted execution, which every door goes through."""
        return self._open_parts.dispatcher

    @property
    def store(self) -> RunStore:
        """Where this host's runs are kept, to be read from."""
        return self._open_parts.store

    @property
    def node(self) -> EmbeddedNode:
        """The node inside this process.

        Raises:
            MisuseError: The node has a process of its own: see `local_node`.
        """
        node = self._open_parts.local.node
        if not isinstance(node, EmbeddedNode):
            raise MisuseError("the node of this host has a process of its own: see `local_node`")
        return node

    @property
    def local_node(self) -> LocalNode:
        """The node of this machine, in this process or in one of its own."""
        return self._open_parts.local.seen

    @property
    def registry(self) -> WorkRegistry:
        """What is running now."""
        return self._open_parts.registry

    @property
    def link(self) -> AskingLink:
        """The link to the node of this machine."""
        return self._open_parts.link

    @property
    def _open_parts(self) -> Parts:
        if self._parts is None or self._status in (HostStatus.STARTING, HostStatus.RECOVERING):
            raise MisuseError("the host isn't open: use `async with Host(...)`")
        if self._loop is not _running_loop():
            raise MisuseError("a host belongs to the event loop that opened it; see `remit.SyncHost`")
        return self._parts

    def _context(self) -> OperationContext:
        return OperationContext(
            host_epoch=self._open_parts.epoch, residencies=self._residencies, connection="embedding"
        )

    def _reach(self) -> Reach:
        parts = self._open_parts
        return Reach(
            store=parts.store,
            feed=parts.feed,
            driver=parts.engine,
            dispatcher=parts.dispatcher,
            context=self._context(),
            door=self.door,
            permits=parts.admission.permits,
        )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
