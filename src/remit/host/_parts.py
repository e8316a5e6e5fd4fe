"""What an open host is made of: the one place where its adapters are chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from remit.admission import Admission, AdmissionSettings, effective_binding
from remit.config import Config
from remit.contract import DeliveryMode, RunRequest
from remit.engine import EmbeddedEngine
from remit.errors import NotFound
from remit.host._catalog import ModelCatalog
from remit.host._local_node import OpenNode, open_node
from remit.host._pools import Pools
from remit.host._watching import Watchers
from remit.host._webhooks import Webhooks, webhook_settings
from remit.nodes import AskingLink, NodeDirectory, NodeLink
from remit.primitives import Clock, Ids, Redactor
from remit.runs import (
    Allowances,
    Dispatcher,
    Feed,
    RunContext,
    RunControl,
    RunTimes,
    Starter,
    StoredRun,
    StoreSessions,
    name_in_host,
    tenant_of_name,
)
from remit.storage import Epochs, SqliteStore
from remit.usage import PriceBook
from remit.work import CleanupFailure, CleanupScope, Residencies, WorkRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What a host is opened with."""

    config: Config
    clock: Clock
    ids: Ids
    times: RunTimes
    door_delivery: DeliveryMode
    node_process: bool
    """Whether the node gets a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An open host's adapters."""

    store: SqliteStore
    epoch: str
    registry: WorkRegistry
    local: OpenNode
    """The node of this machine."""
    nodes: NodeDirectory
    feed: Feed
    admission: Admission
    engine: EmbeddedEngine
    starter: Starter
    dispatcher: Dispatcher
    watchers: Watchers
    webhooks: Webhooks
    prices: PriceBook
    allowances: Allowances

    @property
    def link(self) -> AskingLink:
        """To the node of this machine; it also answers for workspaces that no node serves."""
        return self.local.link


async def open_parts(
    stack: AsyncExitStack,
    settings: HostSettings,
    *,
    data: Path,
    residencies: Residencies,
    on_stop: Callable[[], object],
) -> Parts:
    """Open everything, in order; the stack closes it in reverse.

    Args:
        stack: Owns what is opened.
        settings: Of the host.
        data: The data folder.
        residencies: The host's.
        on_stop: Called when a run was asked to stop.

    Cancellation: what was opened is closed by the stack.
    """
    opening = _Opening(settings, residencies, on_stop)
    return await opening.open(stack, data)


class _Opening:
    """Holds what the parts need of each other while the host is open."""

    def __init__(
        self, settings: HostSettings, residencies: Residencies, on_stop: Callable[[], object]
    ) -> None:
        self._settings = settings
        self._on_stop = on_stop
        self._residencies = residencies
        self._prices = PriceBook(settings.config.prices)
        self._redactor = Redactor()
        self._pools = Pools(
            settings.config,
            prices=self._prices,
            redactor=self._redactor,
            clock=settings.clock,
            ids=settings.ids,
        )

    async def open(self, stack: AsyncExitStack, data: Path) -> Parts:
        config, clock, ids = self._settings.config, self._settings.clock, self._settings.ids
        stack.push_async_callback(self._pools.aclose)
        store = await stack.enter_async_context(SqliteStore.open(data, clock=clock))
        epochs = Epochs(data, clock=clock, ids=ids)
        epoch = stack.enter_context(epochs.start())
        cleanups = await stack.enter_async_context(CleanupScope())
        registry = WorkRegistry(
            clock=clock,
            cleanups=cleanups,
            on_cleanup_failed=self._note_cleanup_failure,
            mask=self._redactor.mask,
        )
        local = await open_node(
            stack, config, data=data, clock=clock, ids=ids, own_process=self._settings.node_process
        )
        directory = NodeDirectory()
        directory.connect(local.link, config.workspaces)
        watchers = await stack.enter_async_context(Watchers())
        webhooks = await stack.enter_async_context(
            Webhooks(
                store,
                registry=registry,
                settings=webhook_settings(config),
                folder=data / "webhooks",
                epoch=epoch.id,
                is_alive=epochs.is_alive,
                clock=clock,
            )
        )
        engine = await stack.enter_async_context(
            EmbeddedEngine(
                store, epoch=epoch.id, make_context=self._make_context, residencies=self._residencies
            )
        )
        admission, allowances = self._make_admission(), Allowances(store)
        starter = Starter(
            store=store,
            epoch=epoch.id,
            admission=admission,
            sessions=StoreSessions(store),
            driver=engine,
            clock=clock,
            check=self._pools.of,  # a provider without its key is refused at the call, not later
            make_ready=self._make_ready,
            check_money=allowances.check,
            door_delivery=self._settings.door_delivery,
            on_stop=self._on_stop,
        )
        await local.wait_ready()
        self._parts = Parts(
            store=store,
            epoch=epoch.id,
            registry=registry,
            local=local,
            nodes=directory,
            feed=Feed(store, clock),
            admission=admission,
            engine=engine,
            starter=starter,
            dispatcher=Dispatcher(
                store,
                starter=starter,
                driver=engine,
                epoch=epoch.id,
                clock=clock,
                find_workspace=partial(_find_workspace, config),
            ),
            watchers=watchers,
            webhooks=webhooks,
            prices=self._prices,
            allowances=allowances,
        )
        return self._parts

    def _make_admission(self) -> Admission:
        config, clock = self._settings.config, self._settings.clock
        settings = AdmissionSettings(
            max_running=config.host.max_running,
            max_queued=config.host.max_queued,
            default_binding=config.default_binding,
        )
        return Admission(
            settings,
            config.bindings,
            catalog=ModelCatalog(config, self._prices, clock),
            clock=clock,
            ids=self._settings.ids,
        )

    async def _make_ready(self, request: RunRequest) -> None:
        self._parts.webhooks.check(request)
        if not self._prices.is_loaded and self._pools.asks_for_prices(request):
            await asyncio.to_thread(self._prices.load)

    def _note_cleanup_failure(self, failure: CleanupFailure) -> None:
        run_id, tenant = failure.work_id.partition(".")[0], tenant_of_name(failure.session_id)
        control = self._parts.engine.find_control(run_id, tenant=tenant)
        if control is not None:
            control.cleanup_failures.append(failure)

    def _link_for(self, stored: StoredRun) -> NodeLink | None:
        workspace = stored.view.workspace
        if workspace is None:
            return None
        return self._parts.nodes.find_link(workspace.ref) or self._parts.link

    def _make_context(self, stored: StoredRun, control: RunControl) -> RunContext:
        parts, settings = self._parts, self._settings
        configured = settings.config.bindings.get(stored.view.binding)
        if configured is None:
            raise NotFound(f"no binding `{stored.view.binding}` is configured any more")
        parts.webhooks.expect(stored, control)
        binding = effective_binding(configured, stored.request, door_delivery=settings.door_delivery)
        return RunContext(
            stored=stored,
            binding=binding,
            pools=self._pools.of(binding),
            store=parts.store,
            link=self._link_for(stored),
            registry=parts.registry,
            feed=parts.feed,
            prices=self._prices,
            clock=settings.clock,
            ids=settings.ids,
            control=control,
            place=parts.admission.permits.place(name_in_host(stored.tenant, stored.view.id)),
            times=settings.times,
            attach=parts.engine.attached,
            allowance=partial(parts.allowances.get, stored.key_id, tenant=stored.tenant),
        )


def _find_workspace(config: Config, root: str) -> str | None:
    """The ref of the workspace with this root, compared as written: a node's path isn't resolved here."""
    return next((ref for ref, one in config.workspaces.items() if str(one.root) == root), None)
