"""Opens, drives and closes a host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from remit.admission import (
    STAGES_OF,
    Admission,
    AdmissionSettings,
    Admitted,
    Binding,
    Deferred,
    PermitRefused,
    effective_binding,
    queue_full,
)
from remit.config import Config, make_data_folder
from remit.contract import DeliveryMode, RunRequest, RunView, StageKind
from remit.engine import EmbeddedEngine
from remit.errors import MisuseError, NotFound
from remit.events import Event
from remit.host._catalog import ModelCatalog
from remit.host._run import Run
from remit.models import ModelPool, Providers, build_pool
from remit.node_agent import EmbeddedNode
from remit.nodes import InProcessLink
from remit.primitives import Clock, Ids, Redactor, SystemClock, SystemIds
from remit.requests import ParsedRequest, fingerprint, parse_request
from remit.runs import (
    CancelAsked,
    CancelBy,
    Feed,
    RunContext,
    RunControl,
    RunStore,
    RunTimes,
    StoredRun,
    StoreSessions,
    Submission,
    refuse_later,
    sweep_dead_runs,
)
from remit.storage import Epochs, SqliteStore
from remit.usage import FREE_KINDS, PriceBook
from remit.work import CleanupFailure, CleanupScope, WorkRegistry


class Host:
    """A process that admits, runs and settles.

    Args:
        config: The settings in force.
        clock: Where time comes from.
        ids: Where ids come from.
        times: How long the parts of an end may take; None: for a host that lives as long as its caller.
        door_delivery: What a request gets that says nothing of delivery.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        times: RunTimes | None = None,
        door_delivery: DeliveryMode = "patch",
    ) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self._times = times or RunTimes(link_grace_ms=0)
        self._door_delivery: DeliveryMode = door_delivery
        self._stack = AsyncExitStack()
        self._pools: dict[str, ModelPool] = {}
        self._providers = Providers(clock=self.clock, ids=self.ids)
        self._prices = PriceBook(config.prices)
        self._redactor = Redactor()
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._parts: _Parts | None = None
        self.swept: tuple[RunView, ...] = ()
        """Runs of dead hosts that were ended when this one opened."""

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()
        self._parts = None
        await self._stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        data = make_data_folder(self.config.data)
        stack.push_async_callback(self._close_providers)
        store = await stack.enter_async_context(SqliteStore.open(data, clock=self.clock))
        epoch = stack.enter_context(Epochs(data, clock=self.clock, ids=self.ids).start())
        cleanups = await stack.enter_async_context(CleanupScope())
        registry = WorkRegistry(
            clock=self.clock,
            cleanups=cleanups,
            on_cleanup_failed=self._note_cleanup_failure,
            mask=self._redactor.mask,
        )
        node = await stack.enter_async_context(
            EmbeddedNode(
                self.config.workspaces,
                data=data,
                clock=self.clock,
                ids=self.ids,
                environment=self.config.environment,
                allow_unconfined=self.config.allow_unconfined,
            )
        )
        link = await stack.enter_async_context(InProcessLink(node))
        feed = Feed(store, self.clock)
        admission = Admission(
            AdmissionSettings(
                max_running=self.config.host.max_running,
                max_queued=self.config.host.max_queued,
                default_binding=self.config.default_binding,
            ),
            self.config.bindings,
            catalog=ModelCatalog(self.config, self._prices, self.clock),
            clock=self.clock,
            ids=self.ids,
        )
        engine = await stack.enter_async_context(
            EmbeddedEngine(store, epoch=epoch.id, make_context=self._make_context)
        )
        self._parts = _Parts(
            store=store,
            epoch=epoch.id,
            registry=registry,
            node=node,
            link=link,
            feed=feed,
            admission=admission,
            engine=engine,
            sessions=StoreSessions(store),
        )
        self.swept = await sweep_dead_runs(store, epoch.id, self.clock)

    async def _close_providers(self) -> None:
        self._pools.clear()
        await self._providers.aclose()

    async def drain(self) -> None:
        """Take no more work, and end what runs (`cancelled`, code `drain`); returns when all has ended."""
        parts = self._open_parts
        parts.admission.drain()
        async with asyncio.TaskGroup() as group:
            for run_id in parts.engine.running:
                control = parts.engine.find_control(run_id)
                if control is not None:
                    self._ask(control, "drain", None)
                    group.create_task(control.ended.wait(), name=f"drain {run_id}")

    # ---- runs

    async def start(
        self, request: RunRequest | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Run:
        """Admit a run; returns once it is stored. What happens to it later shows in its events and its end.

        Raises:
            RequestError: It must be changed, or the settings must; nothing was stored.
            AdmissionError: Not now; nothing was stored.
            IdempotencyConflict: Its id or key was used for another request.
            StorageError: It couldn't be stored.
        """
        parsed = parse_request(request)
        refuse_later(parsed.request)
        if self._asks_for_prices(parsed.request):
            await asyncio.to_thread(self._prices.load)
        async with self._session_lock(parsed.request):
            return await self._admit(parsed, idempotency_key)

    async def _admit(self, parsed: ParsedRequest, idempotency_key: str | None) -> Run:
        """Decide, store and start; nothing else of the same session is decided meanwhile."""
        parts, request = self._open_parts, parsed.request
        facts = await parts.sessions.look(
            session_id=request.session_id, continues=request.continues, tenant="local"
        )
        decision = parts.admission.decide(parsed, facts=facts, door_delivery=self._door_delivery)
        if isinstance(decision, Deferred) and await self._is_repeated(request):
            return Run(self, request.id or "")
        if not isinstance(decision, Admitted):
            raise decision.error
        self._pools_of(decision.binding)  # a provider without its key is refused here, not later
        if decision.interrupts is not None:
            Run(self, decision.interrupts).cancel_nowait(reason="another run of its session")
        return await self._submit(decision, idempotency_key)

    def _session_lock(self, request: RunRequest) -> AbstractAsyncContextManager[Any]:
        """Held while a request of a session is admitted, so that two can't both find it free."""
        name = request.session_id or request.continues
        if name is None:
            return nullcontext()
        return self._session_locks.setdefault(name, asyncio.Lock())

    async def _is_repeated(self, request: RunRequest) -> bool:
        """Whether the request's own id names a run that was admitted for the same request before."""
        if request.id is None:
            return False
        stored = await self._open_parts.store.find_run(request.id)
        return stored is not None and stored.fingerprint == fingerprint(request)

    async def _submit(self, admitted: Admitted, idempotency_key: str | None) -> Run:
        """Take a place, then store the run: what is stored always has a place."""
        parts = self._open_parts
        permits, run_id = parts.admission.permits, admitted.run.id
        held = permits.holds(run_id)
        answer = permits.ask(run_id)
        if isinstance(answer, PermitRefused):
            raise queue_full(answer)
        created = False
        try:
            submitted = await parts.store.submit(
                Submission(
                    run=admitted.run,
                    request=admitted.request,
                    fingerprint=admitted.fingerprint,
                    epoch=parts.epoch,
                    idempotency_key=idempotency_key,
                    text_replaced=admitted.text_replaced,
                )
            )
            created = submitted.created
        finally:
            if not created and not held:
                permits.release(run_id)
        if created:
            parts.engine.start(run_id)
        return Run(self, submitted.run.view.id)

    def _asks_for_prices(self, request: RunRequest) -> bool:
        """Whether the price book may be asked: half a second of reading that isn't for the loop's thread."""
        named = [request.model, *(stage.model for stage in request.stages.values())]
        models = [model for model in named if model is not None]
        models += [member.model for pool in self.config.pools.values() for member in pool.members]
        tables = (self.config.find_provider(model.partition(":")[0]) for model in models)
        return any(table is not None and table.kind not in FREE_KINDS for table in tables)

    async def find_run(self, run_id: str) -> RunView | None:
        """A run as it stands now; None when there is none of that id."""
        stored = await self._open_parts.store.find_run(run_id)
        return stored.view if stored is not None else None

    def open_run(self, run_id: str) -> Run:
        """The handle of a run that was started before."""
        return Run(self, run_id)

    @property
    def store(self) -> RunStore:
        """Where this host's runs are kept, to be read from."""
        return self._open_parts.store

    @property
    def node(self) -> EmbeddedNode:
        """The node inside this process."""
        return self._open_parts.node

    @property
    def registry(self) -> WorkRegistry:
        """What is running now."""
        return self._open_parts.registry

    @property
    def link(self) -> InProcessLink:
        """The link to the node inside this process."""
        return self._open_parts.link

    # ---- for the handles

    @property
    def _open_parts(self) -> _Parts:
        if self._parts is None:
            raise MisuseError("the host isn't open: use `async with Host(...)`")
        return self._parts

    def _follow(self, run_id: str, after: int) -> AsyncIterator[Event]:
        return self._open_parts.feed.follow(run_id, after=after)

    def _control(self, run_id: str) -> RunControl | None:
        return self._open_parts.engine.find_control(run_id)

    def _note_cleanup_failure(self, failure: CleanupFailure) -> None:
        control = self._control(failure.work_id.partition(".")[0])
        if control is not None:
            control.cleanup_failures.append(failure)

    def _ask(self, control: RunControl, by: CancelBy, reason: str | None) -> bool:
        asked = CancelAsked(by=by, reason=reason, at=self.clock.now(), at_monotonic=self.clock.monotonic())
        return control.ask(asked)

    def _make_context(self, stored: StoredRun, control: RunControl) -> RunContext:
        parts = self._open_parts
        configured = self.config.bindings.get(stored.view.binding)
        if configured is None:
            raise NotFound(f"no binding `{stored.view.binding}` is configured any more")
        binding = effective_binding(configured, stored.request, door_delivery=self._door_delivery)
        return RunContext(
            stored=stored,
            binding=binding,
            pools=self._pools_of(binding),
            store=parts.store,
            link=parts.link if stored.view.workspace is not None else None,
            registry=parts.registry,
            feed=parts.feed,
            prices=self._prices,
            clock=self.clock,
            ids=self.ids,
            control=control,
            place=parts.admission.permits.place(stored.view.id),
            times=self._times,
        )

    def _pools_of(self, binding: Binding) -> dict[StageKind, ModelPool]:
        pools: dict[StageKind, ModelPool] = {}
        for kind in STAGES_OF[binding.profile]:
            settings = self.config.get_pool(binding.stage(kind))
            if settings.name not in self._pools:
                providers = {
                    member.provider_name: self.config.get_provider(member.provider_name)
                    for member in settings.members
                }
                for provider in providers.values():
                    if provider.api_key is not None:
                        self._redactor.add(provider.api_key)
                self._pools[settings.name] = build_pool(
                    settings,
                    providers,
                    clock=self.clock,
                    ids=self.ids,
                    prices=self._prices,
                    shared=self._providers,
                )
            pools[kind] = self._pools[settings.name]
        return pools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """An open host's adapters."""

    store: SqliteStore
    epoch: str
    registry: WorkRegistry
    node: EmbeddedNode
    link: InProcessLink
    feed: Feed
    admission: Admission
    engine: EmbeddedEngine
    sessions: StoreSessions
