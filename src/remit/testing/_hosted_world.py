"""A dispatcher in memory, with all that is below it: store, engine, node, and models that do as asked.

What a run does hangs on its text: one with `Wait until` blocks in a tool call until it is stopped, one with
`Think for ever` waits for a model that never answers, one with `Fail at once` is refused by its provider; any
other completes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from remit.admission import Admission, AdmissionSettings, Binding, effective_binding
from remit.contract import RunRequest
from remit.engine import EmbeddedEngine
from remit.errors import InvalidRequest, ProviderError, RequestError
from remit.models import ModelRequest, ToolResultsMessage
from remit.nodes import AskingLink
from remit.primitives import SystemClock, SystemIds
from remit.runs import (
    Dispatcher,
    Feed,
    HostedRun,
    OperationContext,
    RunContext,
    RunControl,
    RunStore,
    RunTimes,
    SessionSpec,
    Starter,
    StoredRun,
    StoreSessions,
)
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._memory_store import MemoryStore
from remit.testing._run_world import BLOCK, PASS, PLAN, WORK, WRITE
from remit.testing._wired_node import LinkKind, linked
from remit.usage import PriceBook
from remit.work import CleanupScope, Residencies, WorkRegistry

EPOCH = "epoch_hosted"
FOLDER = "/home/me/app"
_MANY = 10_000


class _AnyModel:
    """A catalog that knows every model, each free."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        return ("fake:model",)

    def refusal(self, model: str) -> RequestError | None:
        """Any other."""
        return None if model == "fake:model" else InvalidRequest("there is one model", param="model")

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        """All do."""
        return True

    def is_priced(self, model: str) -> bool:
        return True


def _reply(request: ModelRequest) -> PoolReply:
    text, stage = str(request.messages), request.stage_id.partition("-")[0]
    if stage == "plan" and "Fail at once" in text:
        return ProviderError("no", reason="auth")  # type: ignore[return-value] - played as what ends the attempt
    if stage == "plan" and "Think for ever" in text:
        return PoolReply(text=PLAN, gate=asyncio.Event())
    if stage == "plan":
        return PoolReply(text=PLAN)
    if stage == "review":
        return PoolReply(text=PASS)
    if isinstance(request.messages[-1], ToolResultsMessage):
        return PoolReply(text=WORK)
    return PoolReply(calls=[BLOCK if "Wait until" in text else WRITE], finish="tool_calls")


async def _nothing(_: RunRequest) -> None:
    """There is no price book to load."""


@dataclass(kw_only=True)
class HostedWorld:
    """A host's inside, in memory."""

    store: RunStore
    node: FakeNode
    pool: FakePool
    registry: WorkRegistry
    admission: Admission
    residencies: Residencies
    times: RunTimes
    link: AskingLink
    clock: SystemClock = field(default_factory=SystemClock)
    engine: EmbeddedEngine = field(init=False)
    dispatcher: Dispatcher = field(init=False)

    def context(self, epoch: str = EPOCH) -> OperationContext:
        """Of whoever asks."""
        return OperationContext(host_epoch=epoch, residencies=Residencies(parent=self.residencies))

    def spec(self, **fields: Any) -> SessionSpec:
        """Where a turn works."""
        return SessionSpec.model_validate({"workspace": {"ref": "app"}, **fields})

    def hosted(self, *, drain: Any = None) -> HostedRun:
        """A runner of hosted executions."""
        context = self.context()
        return HostedRun(
            self.dispatcher,
            context,
            drain=drain,
            wait_execution_drained=context.residencies.wait_drained,
            wait_all_drained=context.residencies.wait_all_drained,
            clock=self.clock,
        )

    def make_context(self, stored: StoredRun, control: RunControl) -> RunContext:
        """What a claimed run works with."""
        binding = effective_binding(self.admission.bindings["reviewed"], stored.request)
        return RunContext(
            stored=stored,
            binding=binding,
            pools=dict.fromkeys(("plan", "work", "review"), self.pool),
            store=self.store,
            link=self.link,
            registry=self.registry,
            feed=Feed(self.store, self.clock),
            prices=PriceBook(),
            clock=self.clock,
            ids=SystemIds(),
            control=control,
            place=self.admission.permits.place(stored.view.id),
            times=self.times,
        )


@asynccontextmanager
async def hosted_world(
    *,
    settings: AdmissionSettings | None = None,
    store: RunStore | None = None,
    link_kind: LinkKind = "in_process",
) -> AsyncGenerator[HostedWorld]:
    """A world; what still runs at its end is stopped."""
    clock, node = SystemClock(), FakeNode({"a.txt": "old\n"})
    binding = Binding(name="reviewed", workspace="app", delivery="apply", allow_models=("*",))
    admission = Admission(
        settings or AdmissionSettings(),
        {"reviewed": binding},
        catalog=_AnyModel(),
        clock=clock,
        ids=SystemIds(),
    )
    async with linked(node, link_kind) as link, CleanupScope() as cleanups:
        world = HostedWorld(
            store=store or MemoryStore(clock=clock),
            node=node,
            pool=FakePool(*[_reply] * _MANY),
            registry=WorkRegistry(clock=clock, cleanups=cleanups),
            admission=admission,
            residencies=Residencies(),
            times=RunTimes(link_grace_ms=0, drain_slack_ms=2_000),
            link=link,
        )
        engine = EmbeddedEngine(
            world.store, epoch=EPOCH, make_context=world.make_context, residencies=world.residencies
        )
        async with engine:
            _assemble(world, engine)
            try:
                yield world
            finally:
                await _stop_all(world)


def _assemble(world: HostedWorld, engine: EmbeddedEngine) -> None:
    starter = Starter(
        store=world.store,
        epoch=EPOCH,
        admission=world.admission,
        sessions=StoreSessions(world.store),
        driver=engine,
        clock=world.clock,
        check=lambda binding: None,
        make_ready=_nothing,
    )
    world.engine = engine
    world.dispatcher = Dispatcher(
        world.store,
        starter=starter,
        driver=engine,
        epoch=EPOCH,
        clock=world.clock,
        find_workspace=lambda root: "app" if root == FOLDER else None,
    )


async def _stop_all(world: HostedWorld) -> None:
    for run_id in world.engine.running:
        world.dispatcher._starter.ask_to_stop(run_id, by="drain", reason=None)  # pyright: ignore[reportPrivateUsage] - its own world
    await world.residencies.wait_all_drained()
