"""What the five operations do: one suite for all that implement `remit.runs.HostedOperations`.

To use it, derive a test class and give it a `harness` fixture (a `HostedHarness`, fresh for each test):

    class TestMyOperations(OperationsSuite):
        @pytest.fixture
        async def harness(self): ...

It needs pytest and pytest-asyncio in mode `auto`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import pytest

from remit.contract import RunStatus
from remit.runs import (
    Answer,
    Done,
    HostedOperations,
    OperationContext,
    Refused,
    SessionCreate,
    SessionSpec,
    TurnQuery,
    TurnSnapshot,
    TurnSpec,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageQuery,
    UsageRange,
    UsageSummarised,
)

__all__ = ["HostedHarness", "OperationsSuite"]

COMPLETES = "Make a.txt new."
WAITS = "Wait until somebody stops you."
FAILS = "Fail at once."


class HostedHarness(Protocol):
    """Five operations over something that does as it is asked.

    A turn with `Wait until` in its text goes on in a tool call until it is stopped; one with `Fail at once`
    is refused by its provider, code `auth`; any other completes.
    """

    @property
    def operations(self) -> HostedOperations:
        """The five operations."""
        ...

    def context(self) -> OperationContext:
        """Of whoever asks, counted by itself."""
        ...

    def stale_context(self) -> OperationContext:
        """Of another start of the host."""
        ...

    def spec(self) -> SessionSpec:
        """Where a turn works."""
        ...

    async def until_working(self, turn_id: str) -> None:
        """Return once a turn that waits does so."""
        ...


class OperationsSuite:
    """The rules of the five operations."""

    async def test_a_session_is_created_and_nothing_stored(self, harness: HostedHarness) -> None:
        """`created`, with what the request leads to; no turn is there by it."""
        answer = await _create(harness, "run_1")
        assert isinstance(answer, Done)
        assert (answer.ok, answer.result.kind) == (True, "created")
        session = answer.result.session
        assert (session.session_id, session.spec) == ("run_1", harness.spec())
        assert (session.binding, session.profile, session.created) == ("reviewed", "reviewed", True)
        await _expect_refused(harness.operations.query_turn(_query("run_1"), harness.context()), "not_found")

    @pytest.mark.parametrize(
        ("spec", "turn", "code", "param"),
        [
            ({"binding": "other"}, {}, "not_found", "binding"),
            ({"folder": "/no/such/folder", "workspace": None}, {}, "not_found", "folder"),
            (
                {"folder": "/no/such/folder", "workspace": {"ref": "app"}},
                {},
                "invalid_request",
                "folder",
            ),
            ({"model": "nobody:model"}, {}, "invalid_request", "model"),
            (
                {"target": {"connection_id": "a", "connection_slug": "b", "model": "m"}, "model": None},
                {},
                "invalid_request",
                "target.connection_id",
            ),
            ({}, {"prompt": "  "}, "invalid_request", "prompt"),
            ({}, {"id": "another"}, "invalid_request", "id"),
            ({}, {"prompt": None}, "invalid_request", "prompt"),
        ],
    )
    async def test_what_must_be_changed_is_refused(
        self, harness: HostedHarness, spec: dict[str, Any], turn: dict[str, Any], code: str, param: str
    ) -> None:
        """`{ok: false, error}` with a stable code and the field, when created and when started."""
        session = SessionSpec.model_validate({**harness.spec().model_dump(exclude_unset=True), **spec})
        wanted = TurnSpec.model_validate({"prompt": COMPLETES, **turn})
        create = SessionCreate(session_id=None, turn_id="run_1", session=session, turn=wanted)
        refused = await _expect_refused(harness.operations.create_session(create, harness.context()), code)
        assert refused.error.fields["param"] == param
        good = (await _create(harness, "run_1")).get().session.model_copy(update={"spec": session})
        start = TurnStart(session=good, turn_id="run_1", turn=wanted)
        refused = await _expect_refused(harness.operations.start_turn(start, harness.context()), code)
        assert refused.error.fields["param"] == param
        await _expect_refused(harness.operations.query_turn(_query("run_1"), harness.context()), "not_found")

    async def test_a_session_of_another_id(self, harness: HostedHarness) -> None:
        """A session id that the request doesn't lead to is refused."""
        create = SessionCreate(
            session_id="other", turn_id="run_1", session=harness.spec(), turn=TurnSpec(prompt=COMPLETES)
        )
        await _expect_refused(harness.operations.create_session(create, harness.context()), "invalid_request")

    async def test_a_turn_from_start_to_end(self, harness: HostedHarness) -> None:
        """`started` with a snapshot; a query finds the end, with its moment and without a class."""
        started = await _start(harness, "run_1")
        assert (started.kind, started.joined) == ("started", False)
        assert started.skills.to_json() == {"loaded": [], "failed": [], "receipts": []}
        turn = started.turn
        assert (turn.session_id, turn.turn_id, turn.run_id) == ("run_1", "run_1", "run_1")
        assert (turn.step_cap, turn.completed_at, turn.failure_class) == (200, None, None)
        ended = await _until_ended(harness, "run_1")
        assert ended.status is RunStatus.COMPLETED
        assert ended.started_at is not None
        assert ended.completed_at is not None
        assert ended.completed_at >= ended.started_at
        assert ended.failure_class is None
        assert list(ended.to_json()) == [
            "session_id",
            "turn_id",
            "run_id",
            "status",
            "step_cap",
            "started_at",
            "completed_at",
            "failure_class",
        ]

    async def test_a_turn_that_fails(self, harness: HostedHarness) -> None:
        """Only then there is a class: the terminal's own class and code, and nothing that anybody said."""
        await _start(harness, "run_1", FAILS)
        ended = await _until_ended(harness, "run_1")
        assert (ended.status, ended.failure_class) == (RunStatus.FAILED, "provider/auth")

    async def test_a_query_doesnt_wait_for_ever(self, harness: HostedHarness) -> None:
        """It answers with what is so, once its time is over, and before it when the end comes."""
        await _start(harness, "run_1", WAITS)
        await harness.until_working("run_1")
        turn = (await harness.operations.query_turn(_query("run_1", wait_ms=30), harness.context())).get()
        assert turn.status is RunStatus.WORKING
        assert turn.completed_at is None
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            waiting = group.create_task(
                harness.operations.query_turn(_query("run_1", wait_ms=60_000), harness.context())
            )
            await asyncio.sleep(0.02)
            await _stop(harness, "run_1")
        assert waiting.result().get().status is RunStatus.CANCELLED

    # ---- starting twice

    async def test_a_repeated_start_joins(self, harness: HostedHarness) -> None:
        """The same id and request: the same run, going on or ended; nothing is started again."""
        await _start(harness, "run_1", WAITS)
        again = await _start(harness, "run_1", WAITS)
        assert again.joined
        await harness.until_working("run_1")
        await _stop(harness, "run_1")
        ended = await _start(harness, "run_1", WAITS)
        assert (ended.joined, ended.turn.status) == (True, RunStatus.CANCELLED)

    async def test_another_request_conflicts(self, harness: HostedHarness) -> None:
        """The same id and another request: refused, and the run isn't touched."""
        await _start(harness, "run_1")
        answer = harness.operations.start_turn(await _turn(harness, "run_1", WAITS), harness.context())
        await _expect_refused(answer, "idempotency_conflict")
        assert (await _until_ended(harness, "run_1")).status is RunStatus.COMPLETED

    async def test_many_starts_at_once(self, harness: HostedHarness) -> None:
        """Of ten at once one starts the run, the others join it."""
        starts = [await _turn(harness, "run_1", COMPLETES) for _ in range(10)]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(harness.operations.start_turn(start, harness.context())) for start in starts
            ]
        answers = [task.result().get() for task in tasks]
        joined = [isinstance(answer, TurnStarted) and answer.joined for answer in answers]
        assert sorted(joined) == [False] + [True] * 9
        assert (await _until_ended(harness, "run_1")).status is RunStatus.COMPLETED

    # ---- stopping

    async def test_a_stop_waits_for_the_end(self, harness: HostedHarness) -> None:
        """Its answer is the terminal: cancelled, at its moment, and a query says the same."""
        await _start(harness, "run_1", WAITS)
        await harness.until_working("run_1")
        stopped = await _stop(harness, "run_1")
        assert stopped.status is RunStatus.CANCELLED
        assert stopped.completed_at is not None
        assert stopped.failure_class is None
        assert (await _until_ended(harness, "run_1")) == stopped

    async def test_stops_are_joined(self, harness: HostedHarness) -> None:
        """However many, at once or later, and whoever asks: one end, the same answer for all."""
        await _start(harness, "run_1", WAITS)
        await harness.until_working("run_1")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_stop(harness, "run_1")) for _ in range(5)]
        answers = [task.result() for task in tasks]
        later = await _stop(harness, "run_1")
        assert all(answer == later for answer in answers)

    async def test_a_stop_of_an_ended_turn(self, harness: HostedHarness) -> None:
        """It changes nothing, and answers how the turn ended: the canonical end is the stored one."""
        await _start(harness, "run_1")
        ended = await _until_ended(harness, "run_1")
        assert await _stop(harness, "run_1") == ended

    async def test_a_stop_of_an_unknown_turn(self, harness: HostedHarness) -> None:
        """It is refused, and nothing is left of it: a later start goes on as ever."""
        stop = TurnStop(session_id="run_1", turn_id="run_1")
        await _expect_refused(harness.operations.stop_turn(stop, harness.context()), "not_found")
        await _start(harness, "run_1")
        assert (await _until_ended(harness, "run_1")).status is RunStatus.COMPLETED

    async def test_a_tombstone(self, harness: HostedHarness) -> None:
        """Asked for, an unknown id is dead: a start answers a cancelled run, for ever; nothing is used."""
        stop = TurnStop(session_id="run_1", turn_id="run_1", tombstone=True)
        dead = (await harness.operations.stop_turn(stop, harness.context())).get()
        assert (dead.turn_id, dead.status) == ("run_1", RunStatus.CANCELLED)
        started = await _start(harness, "run_1", WAITS)
        assert (started.joined, started.turn.status) == (False, RunStatus.CANCELLED)
        for text in (WAITS, COMPLETES):
            again = await _start(harness, "run_1", text)
            assert (again.joined, again.turn.status) == (True, RunStatus.CANCELLED)
        assert await _stop(harness, "run_1") == again.turn
        usage = await _usage(harness, "run_1")
        assert (usage.summary.request_count, usage.summary.totals.total_tokens) == (0, 0)

    # ---- usage

    async def test_usage_in_numbers(self, harness: HostedHarness) -> None:
        """Counts and seven totals: cache reads and writes lie in the input, reasoning in the output."""
        await _start(harness, "run_1")
        await _until_ended(harness, "run_1")
        usage = await _usage(harness, "run_1")
        assert usage.kind == "summary"
        summary, totals = usage.summary, usage.summary.totals.model_dump()
        assert summary.request_count == 4
        assert summary.error_count == 0
        assert summary.cost_usd == 0
        assert totals["total_tokens"] == totals["input_tokens"] + totals["output_tokens"] > 0
        assert totals["cache_miss_tokens"] == totals["input_tokens"] - totals["cache_read_tokens"]
        assert totals["reasoning_tokens"] <= totals["output_tokens"]
        assert summary.cache_hit_count == (4 if totals["cache_read_tokens"] else 0)
        assert summary.cache_create_count == (4 if totals["cache_write_tokens"] else 0)
        assert usage.provenance.to_json() == {
            "coverage": {
                "attempts": 4,
                "priced": 4,
                "unpriced": 0,
                "reported": 4,
                "partial": 0,
                "missing": 0,
            },
            "legacy_records": 0,
            "unreadable_records": 0,
            "pending_repairs": 0,
        }

    async def test_usage_belongs_to_the_run(self, harness: HostedHarness) -> None:
        """Two runs at once, and a range that holds neither: each has its own four requests."""
        await _start(harness, "run_1")
        await _start(harness, "run_2")
        ended = [await _until_ended(harness, run_id) for run_id in ("run_1", "run_2")]
        for turn in ended:
            assert turn.started_at is not None
            long_ago = UsageRange(
                start=turn.started_at.replace(year=2000), end=turn.started_at.replace(year=2001)
            )
            usage = await _usage(harness, turn.turn_id, long_ago)
            assert usage.summary.request_count == 4
            assert usage.summary.range == long_ago
            whole = await _usage(harness, turn.turn_id)
            assert whole.summary.range is None
            assert usage.summary.model_copy(update={"range": None}) == whole.summary
            assert usage.provenance == whole.provenance

    async def test_a_refused_request_used_nothing(self, harness: HostedHarness) -> None:
        """It counts as reported, and as an error."""
        await _start(harness, "run_1", FAILS)
        await _until_ended(harness, "run_1")
        usage = await _usage(harness, "run_1")
        coverage = usage.provenance.coverage
        assert coverage.attempts >= 1
        assert (coverage.reported, usage.summary.error_count) == (coverage.attempts, coverage.attempts)
        assert usage.summary.totals.total_tokens == 0

    async def test_usage_of_an_unknown_turn(self, harness: HostedHarness) -> None:
        """It is refused."""
        query = UsageQuery(session_id="run_1", turn_id="run_1")
        await _expect_refused(harness.operations.query_usage(query, harness.context()), "not_found")

    # ---- who asks

    async def test_a_context_of_another_epoch(self, harness: HostedHarness) -> None:
        """Whoever belongs to another start of the host is refused, by each of the five."""
        operations, stale = harness.operations, harness.stale_context()
        start = await _turn(harness, "run_1", COMPLETES)
        create = SessionCreate(
            session_id=None, turn_id="run_1", session=harness.spec(), turn=TurnSpec(prompt=COMPLETES)
        )
        stop = TurnStop(session_id="run_1", turn_id="run_1", tombstone=True)
        usage = UsageQuery(session_id="run_1", turn_id="run_1")
        for answer in (
            operations.create_session(create, stale),
            operations.start_turn(start, stale),
            operations.query_turn(_query("run_1"), stale),
            operations.stop_turn(stop, stale),
            operations.query_usage(usage, stale),
        ):
            await _expect_refused(answer, "ownership")
        assert (await _start(harness, "run_1")).turn.status is not RunStatus.CANCELLED

    async def test_what_is_started_is_counted(self, harness: HostedHarness) -> None:
        """A turn holds the residencies of the context that started it until nothing of it goes on."""
        mine, other = harness.context(), harness.context()
        start = await _turn(harness, "run_1", WAITS)
        assert isinstance((await harness.operations.start_turn(start, mine)).get(), TurnStarted)
        await harness.until_working("run_1")
        assert mine.residencies.by_label().keys() >= {"pipeline", "checkout", "tool"}
        assert other.residencies.count == 0
        await _stop(harness, "run_1")
        assert mine.residencies.count == 0


# ---- asking


def _query(turn_id: str, *, wait_ms: int = 0) -> TurnQuery:
    return TurnQuery(session_id=turn_id, turn_id=turn_id, wait_ms=wait_ms)


async def _create(harness: HostedHarness, turn_id: str, text: str = COMPLETES) -> Answer[Any]:
    turn = TurnSpec(id=turn_id, prompt=text)
    create = SessionCreate(session_id=turn_id, turn_id=turn_id, session=harness.spec(), turn=turn)
    return await harness.operations.create_session(create, harness.context())


async def _turn(harness: HostedHarness, turn_id: str, text: str) -> TurnStart:
    session = (await _create(harness, turn_id, text)).get().session
    return TurnStart(session=session, turn_id=turn_id, turn=TurnSpec(id=turn_id, prompt=text))


async def _start(harness: HostedHarness, turn_id: str, text: str = COMPLETES) -> TurnStarted:
    start = await _turn(harness, turn_id, text)
    started = (await harness.operations.start_turn(start, harness.context())).get()
    assert isinstance(started, TurnStarted)
    return started


async def _until_ended(harness: HostedHarness, turn_id: str) -> TurnSnapshot:
    async with asyncio.timeout(60):
        while True:
            query = _query(turn_id, wait_ms=1_000)
            turn = (await harness.operations.query_turn(query, harness.context())).get()
            if turn.status.ended:
                return turn


async def _stop(harness: HostedHarness, turn_id: str) -> TurnSnapshot:
    stop = TurnStop(session_id=turn_id, turn_id=turn_id)
    async with asyncio.timeout(60):
        return (await harness.operations.stop_turn(stop, harness.context())).get()


async def _usage(
    harness: HostedHarness, turn_id: str, looked_at: UsageRange | None = None
) -> UsageSummarised:
    query = UsageQuery(session_id=turn_id, turn_id=turn_id, range=looked_at)
    return (await harness.operations.query_usage(query, harness.context())).get()


async def _expect_refused(answer: Any, code: str) -> Refused:
    refused = await answer
    assert isinstance(refused, Refused), refused
    assert (refused.ok, refused.error.code) == (False, code)
    assert refused.error.message
    with pytest.raises(type(refused.cause)):
        refused.get()
    return refused
