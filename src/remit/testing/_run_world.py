"""A world in memory that one run can be driven in: store, node, pools, registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from remit.admission import Admitted, Binding, Permits, SessionFacts, decide
from remit.contract import RunRequest, RunView
from remit.errors import RequestError
from remit.events import Event
from remit.models import ModelPool
from remit.nodes import AskingLink
from remit.primitives import SystemClock, SystemIds
from remit.requests import parse_request
from remit.runs import (
    CancelAsked,
    CancelBy,
    Feed,
    RunContext,
    RunControl,
    RunStore,
    RunTimes,
    Submission,
    Supervisor,
)
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._memory_store import MemoryStore
from remit.testing._wired_node import LinkKind, linked
from remit.usage import PriceBook
from remit.work import CleanupScope, WorkRegistry

PLAN = '{"plan": "Change a.txt.", "verification": "Run the checks."}'
WORK = '{"completion": "Changed a.txt.", "verification": "The checks pass."}'
PASS = '{"decision": "pass", "output": "a.txt is right now.", "summary": "Fine."}'  # noqa: S105 - a verdict, no password
WRITE = ("c1", "write_file", '{"relative_path": "a.txt", "content": "new\\n"}')
BLOCK = ("c1", "run_shell", '{"command": "block"}')


def good_replies() -> tuple[PoolReply, ...]:
    """Plan, a tool call, the work's completion, a pass."""
    return (
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )


class _OneModel:
    """A catalog that knows every model, each free."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        return ("fake:model",)

    def refusal(self, model: str) -> RequestError | None:
        """None."""

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        """All do."""
        return True

    def is_priced(self, model: str) -> bool:
        return True


@dataclass(kw_only=True)
class RunWorld:
    """Everything that a supervisor needs, and nothing that leaves the process."""

    pool: ModelPool
    node: FakeNode
    link: AskingLink
    store: RunStore
    registry: WorkRegistry
    times: RunTimes
    epoch: str = "ep_test"
    clock: SystemClock = field(default_factory=SystemClock)
    controls: dict[str, RunControl] = field(default_factory=dict[str, RunControl])
    permits: Permits = field(default_factory=lambda: Permits(max_running=100, max_queued=100))

    async def drive(self, **request: Any) -> RunView:
        """Admit a run and drive it to its end.

        Args:
            request: Fields of a `RunRequest`; the prompt and the delivery `apply` are there already.
        """
        return await self.supervise(await self.admit(**request))

    async def admit(
        self, *, binding: Binding | None = None, facts: SessionFacts | None = None, **request: Any
    ) -> Supervisor:
        """Admit a run and claim it; what comes back can drive it."""
        bound = binding or Binding(name="reviewed", workspace="tree", delivery="apply")
        body = {"prompt": "Make a.txt new.", **request}
        decision = decide(
            parse_request(RunRequest.model_validate(body)),
            {"reviewed": bound.model_copy(update={"name": "reviewed"})},
            catalog=_OneModel(),
            run_id=SystemIds().new("run"),
            now=self.clock.now(),
            facts=facts,
        )
        if not isinstance(decision, Admitted):
            raise decision.error
        await self.store.submit(
            Submission(
                run=decision.run,
                request=decision.request,
                fingerprint=decision.fingerprint,
                epoch=self.epoch,
            )
        )
        run_id = decision.run.id
        stored = await self.store.claim(self.epoch, run_id=run_id)
        assert stored is not None
        control = self.controls[run_id] = RunControl()
        self.permits.ask(run_id)
        context = RunContext(
            stored=stored,
            binding=decision.binding,
            pools=dict.fromkeys(("plan", "work", "review"), self.pool),
            store=self.store,
            link=self.link if decision.run.workspace is not None else None,
            registry=self.registry,
            feed=Feed(self.store, self.clock),
            prices=PriceBook(),
            clock=self.clock,
            ids=SystemIds(),
            control=control,
            place=self.permits.place(run_id),
            times=self.times,
        )
        return Supervisor(context)

    async def supervise(self, supervisor: Supervisor) -> RunView:
        """Drive a run to its end, bounded in time."""
        async with asyncio.timeout(30):
            return await supervisor.drive()

    def cancel(self, run_id: str, *, by: CancelBy = "caller") -> bool:
        """Ask for a cancel."""
        asked = CancelAsked(by=by, reason=None, at=self.clock.now(), at_monotonic=self.clock.monotonic())
        return self.controls[run_id].ask(asked)

    async def events(self, run_id: str) -> tuple[Event, ...]:
        """The run's whole log."""
        return await self.store.read_events(run_id, limit=10_000)


@asynccontextmanager
async def run_world(
    *replies: Any,
    pool: ModelPool | None = None,
    node: FakeNode | None = None,
    store: RunStore | None = None,
    times: RunTimes | None = None,
    link_kind: LinkKind = "in_process",
) -> AsyncGenerator[RunWorld]:
    """A world whose models play these replies; a `FakePool` by default."""
    fake = node or FakeNode({"a.txt": "old\n"})
    clock = SystemClock()
    async with linked(fake, link_kind) as link, CleanupScope() as cleanups:
        yield RunWorld(
            pool=pool or FakePool(*replies),
            node=fake,
            link=link,
            store=store or MemoryStore(clock=clock),
            registry=WorkRegistry(clock=clock, cleanups=cleanups),
            times=times or RunTimes(link_grace_ms=0, drain_slack_ms=2_000),
        )
