"""One effect per tool call, whatever is asked again, cancelled or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.errors import (
    PayloadTooLarge,
    SchemaTooNew,
    StaleGeneration,
    StorageBusy,
    StorageError,
    StorageFull,
)
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import _receipt_writer
from remit.workspaces._receipts import Intent, Outcome, Receipts

DONE = Outcome(status="success", content="done", exit_code=0)
Work = Callable[[str], Awaitable[Outcome]]


def intent(
    call_id: str = "c1", *, run: str = "r1", stage: str = "work-1", generation: int = 1, **more: str
) -> Intent:
    fields: dict[str, str] = {"name": "run_shell", "arguments": "{}", "effect": "command", **more}
    return Intent(run_id=run, stage_id=stage, tool_call_id=call_id, generation=generation, **fields)  # type: ignore[arg-type] - any of its fields


class Counter:
    """Work that counts how often it is done."""

    def __init__(self, outcome: Outcome = DONE) -> None:
        self.outcome = outcome
        self.done = 0
        self.gate: asyncio.Event | None = None
        self.started = asyncio.Event()

    async def __call__(self, receipt_id: str) -> Outcome:
        self.done += 1
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        return self.outcome


async def cancelled_once(receipts: Receipts, moment: Awaitable[object], work: Work) -> None:
    """Begins a call and cancels it at the moment given."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(receipts.run_once(intent(), work))
        await moment
        task.cancel()
    assert task.cancelled()


async def open_receipts(path: Path) -> Receipts:
    return await Receipts.open(path, clock=SystemClock(), ids=SystemIds())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "receipts.sqlite"


@pytest.fixture
async def receipts(path: Path) -> AsyncGenerator[Receipts]:
    opened = await open_receipts(path)
    yield opened
    await opened.aclose()


async def test_receipts_answer_a_repeat_from_the_store(receipts: Receipts, path: Path) -> None:
    """S48, R58: a finished call isn't done again, by this process or the next."""
    work = Counter()
    first = await receipts.run_once(intent(), work)
    again = await receipts.run_once(intent(), work)
    assert (work.done, first.repeated, again.repeated) == (1, False, True)
    assert again.outcome == first.outcome == DONE
    assert again.receipt_id == first.receipt_id
    await receipts.aclose()
    later = await open_receipts(path)
    assert (await later.run_once(intent(), work)).receipt_id == first.receipt_id
    assert work.done == 1
    await later.aclose()


async def test_receipts_join_a_call_that_goes_on(receipts: Receipts) -> None:
    """S48: a repeat of a running call waits for it and gets its outcome."""
    work = Counter()
    work.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(receipts.run_once(intent(), work)) for _ in range(5)]
        await work.started.wait()
        assert await receipts.find_receipt(intent().key) is None
        work.gate.set()
    assert work.done == 1
    assert {task.result().receipt_id for task in tasks} == {tasks[0].result().receipt_id}
    assert sorted(task.result().repeated for task in tasks) == [False, True, True, True, True]


async def test_receipts_a_joiner_may_leave(receipts: Receipts) -> None:
    """S81: cancelling one who only joined stops nothing."""
    work = Counter()
    work.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        owner = group.create_task(receipts.run_once(intent(), work))
        await work.started.wait()
        joiner = group.create_task(receipts.run_once(intent(), work))
        await asyncio.sleep(0)
        joiner.cancel()
        await asyncio.wait({joiner})
        work.gate.set()
    assert owner.result().outcome == DONE


async def test_receipts_tell_calls_apart_by_run_stage_and_id(receipts: Receipts) -> None:
    """S45, S47: the same id in another run or stage is another call."""
    work = Counter()
    calls = [intent(), intent(run="r2"), intent(stage="work-2"), intent("c2")]
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(receipts.run_once(call, work))
    assert work.done == 4


@pytest.mark.parametrize("more", [("arguments", '{"a":1}'), ("name", "write_file")])
async def test_receipts_refuse_another_call_under_a_used_id(
    receipts: Receipts, more: tuple[str, str]
) -> None:
    """R26: an id used for something else does nothing and says so."""
    work = Counter()
    work.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(receipts.run_once(intent(), work))
        await work.started.wait()
        other = replace(intent(), **dict([more]))
        joined = await receipts.run_once(other, work)
        work.gate.set()
    later = await receipts.run_once(other, work)
    assert (work.done, joined.outcome.status, later.outcome.status) == (1, "conflict", "conflict")


async def test_receipts_of_a_dead_process_say_unknown(path: Path) -> None:
    """R58: killed between start and end, the call isn't done again; one that only reads is."""
    script = """
import asyncio, os, sys
from dataclasses import replace
from pathlib import Path
from remit.primitives import SystemClock, SystemIds
from remit.workspaces._receipts import Intent, Receipts
async def work(receipt_id):
    print("started", flush=True)
    await asyncio.sleep(60)
async def main():
    receipts = await Receipts.open(Path(sys.argv[1]), clock=SystemClock(), ids=SystemIds())
    await receipts.run_once(Intent(run_id="r1", stage_id="work-1", tool_call_id="c1", name="run_shell",
        arguments="{}", effect=sys.argv[2], generation=1), work)
asyncio.run(main())
"""
    for effect, status, times in (("command", "outcome_unknown", 0), ("read", "success", 1)):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path), effect], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "started\n"
        finally:
            os.kill(child.pid, signal.SIGKILL)
            await asyncio.to_thread(child.wait, 20)
            if child.stdout is not None:
                child.stdout.close()
        receipts = await open_receipts(path)
        try:
            work = Counter()
            for _ in range(2):
                answer = await receipts.run_once(intent(effect=effect), work)
                assert answer.outcome.status == status
            assert work.done == times
        finally:
            await receipts.forget_run("r1")
            await receipts.aclose()


async def test_receipts_say_cancelled(receipts: Receipts) -> None:
    """R3, S52: a cancelled call is on record as that, and isn't done again."""
    work = Counter()
    work.gate = asyncio.Event()
    await cancelled_once(receipts, work.started.wait(), work)
    work.gate.set()
    assert (await receipts.run_once(intent(), work)).outcome.status == "cancelled"
    assert work.done == 1


async def test_receipts_cancelled_before_the_start(receipts: Receipts) -> None:
    """R3: cancelled while the intent is being stored, nothing begins, then or later."""
    work = Counter()
    await cancelled_once(receipts, asyncio.sleep(0), work)
    answer = await receipts.run_once(intent(), work)
    assert (work.done, answer.outcome.status) in {(0, "cancelled"), (1, "success")}


async def test_receipts_a_call_that_breaks_stays_unknown(receipts: Receipts) -> None:
    """R58: where the work itself is lost, the receipt doesn't pretend to know."""

    async def broken(receipt_id: str) -> Outcome:
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError):
        await receipts.run_once(intent(), broken)
    work = Counter()
    assert (await receipts.run_once(intent(), work)).outcome.status == "outcome_unknown"
    assert work.done == 0


async def test_receipts_refuse_a_stale_generation(receipts: Receipts) -> None:
    """R61: an older owner of the run does nothing more."""
    work = Counter()
    await receipts.fence("r1", 3)
    for call in (intent(generation=2), intent("c9", generation=1, effect="read")):
        with pytest.raises(StaleGeneration):
            await receipts.run_once(call, work)
    with pytest.raises(StaleGeneration):
        await receipts.begin_delivery("r1", "h", generation=2)
    with pytest.raises(StaleGeneration):
        await receipts.fence("r1", 2)
    await receipts.run_once(intent(generation=3), work)
    await receipts.run_once(intent("c2", generation=4), work)
    await receipts.run_once(intent(run="r2", generation=1), work)
    assert work.done == 3


async def test_receipts_deliver_once(receipts: Receipts) -> None:
    """S48: a patch's delivery is noted before it begins, and its result once."""
    assert await receipts.find_delivery("r1", "h") is None
    assert (await receipts.begin_delivery("r1", "h", generation=1)).state == "new"
    assert (await receipts.begin_delivery("r1", "h", generation=1)).state == "started"
    await receipts.finish_delivery("r1", "h", '{"status":"delivered"}')
    await receipts.finish_delivery("r1", "h", '{"status":"conflict"}')
    ended = await receipts.begin_delivery("r1", "h", generation=1)
    assert (ended.state, ended.result) == ("ended", '{"status":"delivered"}')
    assert (await receipts.begin_delivery("r1", "other", generation=1)).state == "new"


async def test_receipts_keep_artifacts(receipts: Receipts) -> None:
    """S37: a run's named text is kept, of any characters, and belongs to that run."""
    stored = await receipts.store_artifact("r1", "plan", "first")
    stored = await receipts.store_artifact("r1", "plan", "the plan 中 \u2028 \0 \ud800")
    found = await receipts.find_artifact("r1", "plan")
    assert found == stored
    assert found is not None
    assert found.text == "the plan 中 \u2028 \0 ?"
    assert await receipts.find_artifact("r2", "plan") is None
    await receipts.store_artifact("r1", "a", "")
    assert await receipts.list_artifacts("r1") == ("a", "plan")
    with pytest.raises(PayloadTooLarge):
        await receipts.store_artifact("r1", "big", "x" * 4_194_305)


async def test_receipts_forget_a_run(receipts: Receipts) -> None:
    """R78: what one run left is gone without a trace in others."""
    work = Counter()
    for run in ("r1", "r2"):
        await receipts.run_once(intent(run=run), work)
        await receipts.store_artifact(run, "plan", "x")
        await receipts.begin_delivery(run, "h", generation=1)
    await receipts.forget_run("r1")
    assert await receipts.find_artifact("r1", "plan") is None
    assert await receipts.find_delivery("r1", "h") is None
    assert await receipts.find_call("r1", "c1", stage_id="work-1") is None
    assert await receipts.find_call("r2", "c1", stage_id="work-1") is not None
    assert (await receipts.run_once(intent(run="r2"), work)).repeated


async def test_receipts_find_the_call_of_the_same_stage_first(receipts: Receipts) -> None:
    """S45: ids are of a stage; where it has none of that id, the run's latest is meant."""
    for stage, content in (("work-1", "old"), ("work-2", "new")):
        await receipts.run_once(intent(stage=stage), Counter(Outcome(status="success", content=content)))
    for stage, content in (("work-1", "old"), ("work-2", "new"), ("review-1", "new")):
        found = await receipts.find_call("r1", "c1", stage_id=stage)
        assert found is not None
        assert found[1].content == content
    assert await receipts.find_call("r2", "c1", stage_id="work-1") is None


async def test_receipts_full_disk_is_typed_and_nothing_is_done(receipts: Receipts) -> None:
    """R60: no space, no start; with space again the store goes on."""
    work = Counter()

    def set_pages(pages: int) -> Callable[[sqlite3.Connection], None]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").close()

    await receipts._writer.do(set_pages(1))

    async def fill() -> None:
        for number in range(200):
            await receipts.run_once(intent(f"c{number}", arguments="x" * 10), work)

    with pytest.raises(StorageFull):
        await fill()
    done = work.done
    with pytest.raises(StorageFull):
        await receipts.store_artifact("r1", "plan", "x" * 100_000)
    await receipts._writer.do(set_pages(100_000))
    answer = await receipts.run_once(intent("later"), work)
    assert (work.done, answer.outcome) == (done + 1, DONE)


async def test_receipts_one_bad_operation_fails_alone(receipts: Receipts) -> None:
    """R59: an error of one doesn't take its batch along."""

    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO artifacts VALUES ('r', 'n', 's', 't', 'at')")
        raise ValueError("mine alone")

    jobs = [receipts._writer.submit(bad if number == 5 else lambda connection: None) for number in range(10)]
    answers = [asyncio.wrap_future(job) for job in jobs]
    await asyncio.wait(answers)
    assert [type(answer.exception()) is ValueError for answer in answers] == [n == 5 for n in range(10)]
    assert await receipts.list_artifacts("r") == ()


async def test_receipts_wait_for_another_process(receipts: Receipts, path: Path) -> None:
    """R59: a held file is waited for; held too long it is a typed error; the loop goes on meanwhile."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        ticker = group.create_task(tick())
        write = group.create_task(receipts.store_artifact("r1", "plan", "x"))
        await asyncio.sleep(0.3)
        assert not write.done()
        other.execute("COMMIT")
        await write
        ticker.cancel()
    assert ticks > 5
    await receipts._writer.do(lambda connection: connection.execute("PRAGMA busy_timeout = 50").close())
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy):
        await receipts.store_artifact("r1", "plan", "y")
    other.execute("COMMIT")
    other.close()


async def test_receipts_refuse_files_they_can_not_read(path: Path) -> None:
    """R60: a newer or broken file is told, not touched."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaTooNew):
        await open_receipts(path)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError):
        await open_receipts(path)
    assert path.read_bytes() == b"not a database" * 100


async def test_receipts_two_processes_share_the_file(receipts: Receipts, path: Path) -> None:
    """R59: a second opener works beside the first."""
    other = await open_receipts(path)
    work = Counter()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                store = receipts if number % 2 else other
                group.create_task(store.run_once(intent(f"c{number}"), work))
        assert work.done == 50
        assert (await other.run_once(intent("c1"), work)).repeated
    finally:
        await other.aclose()


async def test_receipts_cancel_of_an_open_leaves_nothing(path: Path) -> None:
    """R9: whoever is stopped while the file opens leaves no thread behind: the process could never end."""
    opening = asyncio.ensure_future(open_receipts(path))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert "remit-receipts" not in {thread.name for thread in threading.enumerate()}


async def test_receipts_are_private_and_closing_stores_all(path: Path) -> None:
    """R36, R58: only the owner reads the file; what was handed over is stored before the end."""
    receipts = await open_receipts(path)
    for number in range(100):
        receipts._writer.submit(
            lambda connection, name=f"n{number}": connection.execute(
                "INSERT INTO artifacts VALUES ('r', ?, 's', 't', 'at')", (name,)
            ).close()
        )
    await receipts.aclose()
    await receipts.aclose()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM artifacts").fetchone() == (100,)
    connection.close()


async def test_receipts_many_at_once_cost_few_commits(
    receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S51: calls beside each other share commits instead of queueing for the disk."""
    work = Counter()
    batches: list[int] = []
    store = _receipt_writer.store

    def counting(connection: sqlite3.Connection, jobs: list[Any]) -> None:
        batches.append(len(jobs))
        store(connection, jobs)

    monkeypatch.setattr(_receipt_writer, "store", counting)
    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(receipts.run_once(intent(f"c{number}"), work))
    assert work.done == 500
    assert sum(batches) == 1000
    assert len(batches) < 200
