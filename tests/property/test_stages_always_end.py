"""Whatever a model replies, and whenever a cancel comes: the stage ends in bounds, its record whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from examples_kit import examples
from remit.contract import StageKind, ToolResponse
from remit.errors import LimitReached, NodeError, ProviderError
from remit.stages import StageAnswer, StageFailure, ToolUse
from remit.stages._loop import CUTS_FORGIVEN
from remit.testing._fakes_stages import FakePool, Handler, PoolReply, Step, tool_response
from stage_kit import ANSWERS, Bench

KINDS: st.SearchStrategy[StageKind] = st.sampled_from(("plan", "work", "review"))
NAMES = (
    "read_file",
    "grep",
    "write_file",
    "run_shell",
    "nope",
    "",
    "submit_plan",
    "submit_work",
    "submit_review",
)
ARGUMENTS = st.sampled_from(("{}", "", '{"path":"a"}', "{", "null", *map(json.dumps, ANSWERS.values())))
CALL = st.tuples(st.sampled_from(("", "c1", "c2", "c3")), st.sampled_from(NAMES), ARGUMENTS)
REPLY = st.builds(
    PoolReply,
    text=st.sampled_from(("", " ", "Words.", *map(json.dumps, ANSWERS.values()))),
    calls=st.lists(CALL, max_size=4),
    thinking=st.sampled_from(("", "Hmm.")),
    finish=st.sampled_from(
        ("stop", "stop", "tool_calls", "tool_calls", "length", "content_filter", "refusal")
    ),
)
STATUS = st.sampled_from(
    ("success", "failed", "denied", "conflict", "timed_out", "cancelled", "outcome_unknown")
)
ENDS = (StageFailure, ProviderError, LimitReached, NodeError, asyncio.CancelledError)


class Play:
    """One stage with a model and tools that do as they were drawn, over and over."""

    def __init__(
        self, kind: StageKind, replies: list[PoolReply], statuses: list[str], limits: dict[str, int]
    ) -> None:
        self.limits = limits
        self._statuses = statuses
        tools: dict[str, Handler] = dict.fromkeys(NAMES, self._answer)
        self.bench = Bench(kind, tools=tools, limits=limits)
        self.bench.pool = FakePool(*replies * 20)

    async def _answer(self, use: ToolUse) -> ToolResponse:
        status = self._statuses[len(self.bench.tools.uses) % len(self._statuses)]
        await asyncio.sleep(0)
        if status == "lost":
            raise NodeError("gone", reason="lost")
        return tool_response(use, status=status, changed=["a"] if status == "success" else [])

    async def run(self) -> StageAnswer | BaseException:
        try:
            return await self.bench.run()
        except ENDS as error:
            return error

    def check(self) -> None:
        self.bench.check_record()
        most = self.limits["max_tool_rounds"] + 1 + self.limits["max_corrections"] + CUTS_FORGIVEN + 1
        assert len(self.bench.requests) <= most
        ids = [use.tool_call_id for use in self.bench.tools.uses]
        assert len(set(ids)) == len(ids)
        allowed = {spec.name for spec in self.bench.requests[0].tools}
        assert {use.name for use in self.bench.tools.uses} <= allowed


def check_outcome(play: Play, outcome: StageAnswer | BaseException) -> None:
    if isinstance(outcome, StageAnswer):
        assert play.bench.journal.types.count("stage.completed") == 1
        assert play.bench.journal.types[-1] == "stage.completed"
        assert list(outcome.fields) == list(ANSWERS[play.bench.stage.kind])
        assert outcome.used_tools or play.bench.stage.kind != "work"
    elif isinstance(outcome, asyncio.CancelledError):
        # A cancel during the last durable step finds the answer stored; nothing comes after it.
        assert "stage.completed" not in play.bench.journal.types[:-1]
    else:
        assert "stage.completed" not in play.bench.journal.types


LIMITS = st.fixed_dictionaries(
    {
        "max_tool_rounds": st.integers(1, 6),
        "max_corrections": st.integers(0, 2),
        "max_tool_calls_per_round": st.integers(1, 4),
    }
)


@examples(200)
@given(KINDS, st.lists(REPLY, min_size=1, max_size=12), st.lists(STATUS, min_size=1, max_size=6), LIMITS)
def test_every_stage_ends_within_its_bounds(
    kind: StageKind, replies: list[PoolReply], statuses: list[str], limits: dict[str, int]
) -> None:
    """R13, R32, R55, R83, R86: an answer or one failure, never a request too many, every pair whole."""

    async def main() -> None:
        play = Play(kind, replies, statuses, limits)
        async with play.bench:
            check_outcome(play, await play.run())
            play.check()

    asyncio.run(main())


@examples(150)
@given(
    KINDS,
    st.lists(REPLY, min_size=1, max_size=12),
    st.lists(STATUS | st.just("lost"), min_size=1, max_size=6),
    LIMITS,
    st.integers(0, 12),
    st.integers(0, 30),
)
def test_a_cancel_at_any_moment_leaves_a_whole_record(
    kind: StageKind,
    replies: list[PoolReply],
    statuses: list[str],
    limits: dict[str, int],
    step: int,
    turns: int,
) -> None:
    """R3, R5, R27, R33: after the cancel no request begins, and all that began has its end."""

    async def main() -> None:
        play = Play(kind, replies, statuses, limits)
        async with play.bench:
            sent_then: list[int] = []

            async def cancel_later(task: asyncio.Task[Any]) -> None:
                for _ in range(turns):
                    await asyncio.sleep(0)
                sent_then.append(play.bench.pool.sent)
                task.cancel()

            async with asyncio.TaskGroup() as group:

                def at_step(stored: Step) -> None:
                    if len(play.bench.journal.steps) == step + 1:
                        group.create_task(cancel_later(running))

                play.bench.journal.on_append = at_step
                running = group.create_task(play.run())
            outcome = running.result()
            check_outcome(play, outcome)
            play.check()
            if isinstance(outcome, asyncio.CancelledError) and sent_then:
                assert play.bench.pool.sent == sent_then[0]

    asyncio.run(main())
