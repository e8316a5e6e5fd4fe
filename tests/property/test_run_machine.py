"""Whole runs, whatever their model says and whoever stops them when, against what may come of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from examples_kit import examples
from remit.admission import Binding
from remit.contract import Profile, RunStatus, RunView
from remit.errors import PreconditionFailed, ProviderError, QuotaExceeded
from remit.events import TERMINAL_TYPES, Event
from remit.models import ModelRequest
from remit.runs import TRANSITIONS, CancelBy, RunControl, fold_event
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, Played, PoolReply
from remit.testing._run_world import RunWorld, run_world

ANSWERS: dict[str, dict[str, str]] = {
    "plan": {"plan": "Do it.", "verification": "Look."},
    "work": {"completion": "Done.", "verification": "Looked."},
    "review": {"decision": "pass", "output": "It is done.", "summary": "Fine."},
}
KINDS = ("answer", "answer", "answer", "write", "read", "block", "two", "words", "nothing", "cut")
PROFILES: tuple[Profile, ...] = ("reviewed", "reviewed", "direct")
VERDICTS = ("pass", "pass", "revise", "reject")
FAULTS = ("rate_limited", "auth", "unavailable", "content_filter", "cut", "protocol")
BEGINNINGS = {"attempt.started", "tool.started", "stage.started", "work.registered"}
ENDINGS = {"completed", "failed", "finished"}
SAID = st.tuples(st.sampled_from(KINDS), st.sampled_from(VERDICTS))
TREE = {"a.txt": "old\n"}


def kind_of(request: ModelRequest) -> str:
    return request.stage_id.partition("-")[0]


def answer_to(request: ModelRequest, verdict: str = "pass") -> PoolReply:
    """A valid answer of whichever stage asks; work looks at something first."""
    kind = kind_of(request)
    if kind == "work" and request.round == 1:
        return PoolReply(calls=[("w", "write_file", _write("new\n"))], finish="tool_calls")
    fields = ANSWERS[kind] | ({"decision": verdict} if kind == "review" else {})
    return PoolReply(text=json.dumps(fields))


def _write(text: str) -> str:
    return json.dumps({"relative_path": "a.txt", "content": text})


def reply_of(kind: str, verdict: str, number: int, gate: asyncio.Event) -> Any:
    """A reply that is held back until its gate is open."""
    calls = {
        "write": [(f"c{number}", "write_file", _write(f"{number}\n"))],
        "read": [(f"c{number}", "read_file", '{"relative_path": "a.txt"}')],
        "block": [(f"c{number}", "run_shell", '{"command": "block"}')],
        "two": [
            (f"c{number}", "read_file", '{"relative_path": "a.txt"}'),
            (f"d{number}", "nobody", "{}"),
        ],
    }

    def play(request: ModelRequest) -> PoolReply:
        if kind == "answer":
            reply = answer_to(request, verdict)
        elif kind in calls:
            reply = PoolReply(calls=calls[kind], finish="tool_calls")
        elif kind == "cut":
            reply = PoolReply(text='{"plan": "Do', finish="length")
        else:
            reply = PoolReply(text="Well." if kind == "words" else "")
        return PoolReply(text=reply.text, calls=reply.calls, finish=reply.finish, gate=gate)

    return play


class RunMachine(RuleBasedStateMachine):
    """One run at a time in a world in memory; its model answers when it is told to, and what was drawn."""

    world: RunWorld
    control: RunControl
    run_id: str
    gates: list[asyncio.Event]
    driven: asyncio.Future[RunView]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.cancels: list[CancelBy] = []
        self.heard: list[str] = []

    @initialize(
        replies=st.lists(
            st.one_of(*[SAID] * 6, st.sampled_from(FAULTS)),
            max_size=10,
        ),
        profile=st.sampled_from(PROFILES),
        acknowledge=st.booleans(),
        revisions=st.integers(1, 2),
        gate=st.sampled_from((None, "worse", "worse once")),
    )
    def admit(
        self,
        replies: list[tuple[str, str] | str],
        profile: Profile,
        acknowledge: bool,
        revisions: int,
        gate: str | None,
    ) -> None:
        self.gates = [asyncio.Event() for _ in replies]
        played: list[Played] = [
            reply_of(one[0], one[1], number, self.gates[number])
            if isinstance(one, tuple)
            else ProviderError("played", reason=one)
            for number, one in enumerate(replies)
        ]
        self.pool = FakePool(*played, *[answer_to] * 60)
        self.judged = 0

        def check(tree: Any) -> int:
            self.judged += tree != TREE
            return int(gate == "worse" or (gate == "worse once" and self.judged == 1)) if tree != TREE else 0

        node = FakeNode(dict(TREE), checks={"test": check} if gate else None)
        self.acknowledge_required = acknowledge
        binding = Binding(
            name="reviewed",
            workspace="tree",
            profile=profile,
            delivery="apply" if profile == "reviewed" else "patch",
            require_evidence=profile == "reviewed",
        )

        async def begin() -> None:
            self.world = await self.stack.enter_async_context(run_world(pool=self.pool, node=node))
            fields: dict[str, Any] = {"acknowledge": "required"} if acknowledge else {}
            supervisor = await self.world.admit(
                binding=binding, limits={"max_revisions": revisions}, **fields
            )
            self.run_id, self.control = next(iter(self.world.controls.items()))
            self.driven = asyncio.ensure_future(supervisor.drive())  # noqa: TID251 - waited for at the end

        self.loop.run(begin())

    # ---- what may happen

    @rule(turns=st.integers(0, 30))
    def go_on(self, turns: int) -> None:
        async def some_turns() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run(some_turns())

    @rule()
    def let_the_model_answer(self) -> None:
        for gate in self.gates:
            if not gate.is_set():
                gate.set()
                return

    @rule(by=st.sampled_from(("caller", "operator", "client_disconnected", "deadline", "drain")))
    def cancel(self, by: CancelBy) -> None:
        was = (self.control.committed, self.control.asked is not None, self.control.ended.is_set())
        changed = self.world.cancel(self.run_id, by=by)
        assert changed == (not any(was))
        if changed:
            self.cancels.append(by)
        assert len(self.cancels) <= 1, "the first one counts"

    @rule(accepted=st.booleans())
    def answer_the_run(self, accepted: bool) -> None:
        waiting = self.control.acknowledged
        expected = waiting is not None and not waiting.done()
        assert self.control.acknowledge(accepted) == expected

    @rule(text=st.text("ab", min_size=1, max_size=3))
    def tell(self, text: str) -> None:
        try:
            self.control.messages.add(text)
        except (PreconditionFailed, QuotaExceeded):
            return
        self.heard.append(text)

    @precondition(lambda self: self.world.node.blocked.is_set())
    @rule()
    def stop_its_tools(self) -> None:
        self._stop_tools()

    def _stop_tools(self) -> None:
        for session, item in self.world.registry.active_all():
            if item.kind == "tool":
                self.world.registry.cancel(session, item.work_id)

    # ---- the end, and what must hold then

    def teardown(self) -> None:
        try:
            if hasattr(self, "driven"):
                self.check(self.loop.run(self._end()))
        finally:
            self.loop.run(self.stack.aclose())
            self.loop.close()

    async def _end(self) -> RunView:
        for gate in self.gates:
            gate.set()
        async with asyncio.timeout(30):
            while not self.driven.done():
                self._stop_tools()
                self.control.acknowledge(True)
                await asyncio.sleep(0)
        self.log = await self.world.events(self.run_id)
        self.stored = await self.world.store.find_run(self.run_id)
        self.said = await self.world.store.read_transcript(self.run_id)
        return self.driven.result()

    def check(self, view: RunView) -> None:
        check_log(self.log)
        folded = None
        for event in self.log:
            folded = fold_event(folded, event)
        assert self.stored is not None
        assert self.stored.view == folded == view == self.control.final
        assert self.world.registry.active_count() == 0
        assert self.world.link.pending_count() == 0
        assert self.control.residencies.by_label() == {}
        assert self.world.node.opened == self.world.node.cleaned
        self.check_end(view)
        self.check_messages()

    def check_end(self, view: RunView) -> None:
        terminal = view.terminal
        assert terminal is not None
        assert (terminal.kind == "cancelled") == bool(self.cancels)
        assert (view.cancel is not None) == bool(self.cancels)
        if view.cancel is not None:
            assert (terminal.code, view.cancel.by, view.cancel.complete) == (*self.cancels * 2, True)
        tree, types = self.world.node.tree, [event.type for event in self.log]
        assert tree == TREE or "delivery.completed" in types
        if terminal.kind != "completed":
            assert tree == TREE
            assert view.output is None
        elif view.profile == "reviewed":
            assert view.review is not None
            assert (view.review.decision, view.output) == ("pass", "It is done.")
        usage = view.usage
        assert usage is not None
        assert usage.coverage.attempts == types.count("attempt.started")

    def check_messages(self) -> None:
        read = [
            entry.body["text"].rpartition("\n")[2]
            for entry in self.said
            if entry.role == "user" and "A message of the caller" in entry.body["text"][:30]
        ]
        assert read == self.heard[: len(read)], "each once, in order, in one of the stages"
        assert list(self.control.messages.heard) == read


def check_log(events: Sequence[Event]) -> None:
    """A true story: numbers without gaps, one decision, one end, each beginning ended, no leap of status."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type in TERMINAL_TYPES for event in events] == [False] * (len(events) - 1) + [True]
    assert [event.type for event in events].count("run.settling") == 1
    open_: Counter[tuple[str, object]] = Counter()
    folded: RunView | None = None
    for event in events:
        kind, _, word = event.type.partition(".")
        name = {"attempt": "attempt_id", "tool": "tool_call_id", "stage": "stage_id"}.get(kind)
        about = (event.data["stage_id"], event.data[name]) if name is not None else event.work_id
        if event.type in BEGINNINGS:
            open_[kind, about] += 1
        elif kind in {"attempt", "tool", "stage", "work"} and word in ENDINGS:
            open_[kind, about] -= 1
        assert all(number in (0, 1) for number in open_.values()), event
        assert event.work_id is not None, event
        assert (event.parent_work_id is None) == (event.work_id == event.run_id), event
        before = folded.status if folded is not None else RunStatus.QUEUED
        folded = fold_event(folded, event)
        assert folded is not None
        assert before is folded.status or folded.status in {
            after for (status, _), after in TRANSITIONS.items() if status is before
        }, f"{before} -> {folded.status} by {event.type}"
        if event.type == "run.settling":
            assert not any(key[0] in {"attempt", "tool", "stage"} for key in +open_), (
                "decided, and it went on"
            )
    assert not +open_, "what began and has no end"


TestRunMachine = RunMachine.TestCase
TestRunMachine.__doc__ = (
    "R3, R5, R11, R27, S7, S71: one decision, one true log, nothing left, whatever comes."
)
TestRunMachine.settings = examples(150, stateful_step_count=25)
