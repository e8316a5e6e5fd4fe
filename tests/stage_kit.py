"""A stage on the bench: everything around it is a stand-in, but for the registry and the budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from remit.contract import Limits, RunStatus, StageKind, StageStarted, ToolSpec, WorkKind
from remit.events import NewEvent
from remit.models import ModelRequest, ToolResultsMessage, UserMessage
from remit.primitives import SystemClock
from remit.stages import Partial, StageAnswer, StageInput, StageRunner
from remit.testing._fakes_stages import FakeJournal, FakePool, FakeTools, Handler, Played, PoolReply
from remit.usage import Budget
from remit.work import CleanupScope, ScopeHandle, WorkRegistry, WorkSpec

SPECS = (
    ToolSpec(name="read_file", description="Reads.", parameters={"type": "object"}, effect="read"),
    ToolSpec(name="grep", description="Searches.", parameters={"type": "object"}, effect="read"),
    ToolSpec(name="write_file", description="Writes.", parameters={"type": "object"}, effect="write"),
    ToolSpec(name="run_shell", description="Runs.", parameters={"type": "object"}, effect="command"),
)
ANSWERS: dict[StageKind, dict[str, str]] = {
    "plan": {"plan": "Do it.", "verification": "Run it."},
    "work": {"completion": "Did it.", "verification": "Ran it."},
    "review": {"decision": "pass", "output": "It is done.", "summary": "Looked at it."},
}


class CountingIds:
    """Ids that can be foretold."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"


def answer(kind: StageKind, **fields: Any) -> PoolReply:
    """A reply whose text is a valid answer."""
    return PoolReply(text=json.dumps(ANSWERS[kind] | fields))


def calls(*asked: tuple[str, str] | tuple[str, str, str], text: str = "", **fields: Any) -> PoolReply:
    """A reply that asks for tools: (id, name) or (id, name, arguments)."""
    whole = [(one[0], one[1], one[2] if len(one) == 3 else "{}") for one in asked]
    return PoolReply(text=text, calls=whole, finish=fields.pop("finish", "tool_calls"), **fields)


def submit(kind: StageKind, *, id_: str = "s1", **fields: Any) -> PoolReply:
    """A reply that hands in a valid answer by the submit tool."""
    return calls((id_, f"submit_{kind}", json.dumps(ANSWERS[kind] | fields)))


class Bench:
    """One stage with its surroundings. Use as `async with Bench(...) as bench: await bench.run()`."""

    def __init__(
        self,
        kind: StageKind,
        *replies: Played,
        tools: Mapping[str, Handler] | None = None,
        specs: Sequence[ToolSpec] = SPECS,
        limits: dict[str, Any] | None = None,
        pool: Any = None,
        remaining_s: Callable[[], float | None] = lambda: None,
        **fields: Any,
    ) -> None:
        self.pool: Any = pool or FakePool(*replies)
        self.tools = FakeTools(tools)
        self.journal = FakeJournal()
        self.partial = Partial()
        self.stack = AsyncExitStack()
        self.remaining_s = remaining_s
        number = "" if kind == "plan" else "-1"
        values: dict[str, Any] = {
            "run_id": "run_1",
            "session_id": "run_1",
            "stage_id": f"{kind}{number}",
            "kind": kind,
            "work_id": f"run_1.{kind}{number}",
            "request_text": "Make the failing test pass.",
            "instructions": None,
            "brief": "The brief.",
            "tools": tuple(specs),
            "options": {"temperature": 0.5},
            "limits": Limits(**(limits or {})),
            "plan": None if kind == "plan" else "THE PLAN",
        }
        self.stage = StageInput(**(values | fields))
        self.budget = Budget(self.stage.limits)

    async def __aenter__(self) -> Bench:
        scope = await self.stack.enter_async_context(CleanupScope(grace_s=1))
        self.registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
        self.registry.register(
            self.stage.session_id,
            WorkSpec(
                work_id=self.stage.work_id,
                kind=WorkKind.STAGE,
                label=self.stage.stage_id,
                handle=ScopeHandle(lambda: None),
            ),
        )
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.stack.aclose()

    @property
    def opening(self) -> NewEvent:
        payload = StageStarted(stage_id=self.stage.stage_id, status=RunStatus.WORKING)
        return NewEvent(type="stage.started", payload=payload, work_id=self.stage.work_id)

    async def run(self) -> StageAnswer:
        runner = StageRunner(
            pool=self.pool,
            tools=self.tools if self.stage.tools else None,
            journal=self.journal,
            registry=self.registry,
            budget=self.budget,
            clock=SystemClock(),
            ids=CountingIds(),
        )
        return await runner.run(
            self.stage, partial=self.partial, opening=[self.opening], remaining_s=self.remaining_s
        )

    # ---- what came of it

    @property
    def requests(self) -> list[ModelRequest]:
        return self.pool.requests

    def last_results(self, number: int = -1) -> list[str]:
        """What the results in a request's last message say."""
        message = self.requests[number].messages[-1]
        assert isinstance(message, ToolResultsMessage), message
        return [result.content for result in message.results]

    def last_note(self, number: int = -1) -> str:
        message = self.requests[number].messages[-1]
        assert isinstance(message, ToolResultsMessage), message
        return message.note or ""

    def last_told(self, number: int = -1) -> str:
        """What a request's last message says, when it is a plain one."""
        message = self.requests[number].messages[-1]
        assert isinstance(message, UserMessage), message
        return message.text

    def check_record(self) -> None:
        """What holds however a stage ends: all that began has its end, all calls have results."""
        for began, ended in (("tool.started", ("tool.completed",)), ("attempt.started", ATTEMPT_ENDS)):
            ids = [_id(payload) for payload in self.journal.of_type(began)]
            ends = [_id(payload) for type_ in ended for payload in self.journal.of_type(type_)]
            assert sorted(ids) == sorted(ends), f"{began} {ids} against {ends}"
            assert len(set(ids)) == len(ids)
        entries = self.journal.transcript(self.stage.stage_id)
        assert [entry.position for entry in entries] == list(range(len(entries)))
        for entry, after in zip(entries, [*entries, None][1:], strict=True):
            asked = [b["tool_call_id"] for b in entry.body.get("blocks", ()) if "arguments" in b]
            if asked:
                assert after is not None, f"calls {asked} have no result on record"
                assert [r["tool_call_id"] for r in after.body["results"]] == asked
        left = self.registry.active_ids_for_session(self.stage.session_id)
        assert left == (self.stage.work_id,), f"left in the registry: {left}"
        assert self.budget.reserved.total_tokens == 0
        assert self.tools.running == 0


ATTEMPT_ENDS = ("attempt.completed", "attempt.failed")


def _id(payload: Any) -> str:
    return getattr(payload, "tool_call_id", None) or payload.attempt_id
