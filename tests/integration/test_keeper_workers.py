"""File operations in workers: a slow one holds up nothing, an endless one can be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._refusals import OperationRefused
from remit.workspaces.keeper._workers import Job, Workers

# The tests' own process has a thread for time limits; a keeper has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

Answers = dict[int, dict[str, Any]]


def hang(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    del root_fd, arguments
    time.sleep(600)
    return {}


def nap(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    del root_fd
    time.sleep(arguments["ms"] / 1000)
    return {"pid": os.getpid()}


def die(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    del root_fd, arguments
    os._exit(9)


def huge(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    del root_fd, arguments
    return {"content": "x" * (17 * 1024 * 1024)}


def refuse(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    raise OperationRefused("too_large", f"{arguments['name']} is too large")


def fault(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("a bug")


def handles(root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    del arguments
    return {"open": sorted(map(int, os.listdir("/proc/self/fd"))), "root": root_fd}


OPERATIONS = {f.__name__: f for f in (hang, nap, die, huge, refuse, fault, handles)}


class Desk:
    """A loop, workers, and the answers so far."""

    def __init__(self, root_fd: int) -> None:
        self.loop = Loop()
        self.workers = Workers(self.loop, operations=OPERATIONS, root_fd=root_fd)
        self.answers: Answers = {}

    def submit(self, number: int, operation: str, **arguments: Any) -> None:
        self.workers.submit(Job(number, operation, arguments, lambda body: self._answered(number, body)))

    def _answered(self, number: int, body: dict[str, Any]) -> None:
        assert number not in self.answers
        self.answers[number] = body

    def run_until(self, count: int, timeout_s: float = 20) -> None:
        def look() -> None:
            if len(self.answers) >= count or self.loop.now() > deadline:
                self.loop.stop()
            else:
                self.loop.after(0.005, look)

        deadline = self.loop.now() + timeout_s
        look()
        if len(self.answers) < count:
            self.loop.run()
        assert len(self.answers) >= count, self.answers


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    root_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    desk = Desk(root_fd)
    yield desk
    desk.workers.close()
    os.close(root_fd)
    with pytest.raises(ChildProcessError):  # every worker was waited for
        os.waitpid(-1, os.WNOHANG)


def test_an_operation_that_never_ends_is_killed_when_cancelled(desk: Desk) -> None:
    """R55: what can't be asked to stop is killed; others go on meanwhile and afterwards."""
    desk.submit(1, "hang")
    desk.submit(2, "nap", ms=1)
    desk.run_until(1)
    assert "result" in desk.answers[2]
    started = time.monotonic()
    assert desk.workers.cancel(1)
    assert time.monotonic() - started < 1
    assert desk.answers[1]["error"]["status"] == "cancelled"
    assert not desk.workers.cancel(1)
    desk.submit(3, "nap", ms=1)
    desk.run_until(3)


def test_many_run_at_once_and_the_rest_wait_their_turn(desk: Desk) -> None:
    """At most 8 run at once; a waiting one can be cancelled before it starts; workers are used again."""
    started = time.monotonic()
    for number in range(20):
        desk.submit(number, "nap", ms=100)
    assert desk.workers.cancel(19)
    assert desk.answers[19]["error"]["status"] == "cancelled"
    desk.run_until(20)
    assert 0.28 < time.monotonic() - started < 5
    pids = {answer["result"]["pid"] for number, answer in desk.answers.items() if number != 19}
    assert 8 <= len(pids) < 19


def test_a_crash_a_fault_and_a_refusal_are_answers(desk: Desk) -> None:
    """R46: whatever becomes of one operation, it gets one answer and the others aren't touched."""
    desk.submit(1, "die")
    desk.submit(2, "fault")
    desk.submit(3, "refuse", name="big.bin")
    desk.submit(4, "huge")
    desk.submit(5, "no_such_operation")
    desk.run_until(5)
    statuses = {number: answer["error"]["status"] for number, answer in desk.answers.items()}
    assert statuses == {1: "failed", 2: "failed", 3: "too_large", 4: "too_large", 5: "invalid_arguments"}
    assert desk.answers[3]["error"]["message"] == "big.bin is too large"
    assert "a bug" in desk.answers[2]["error"]["message"]


def test_a_worker_holds_no_descriptor_but_its_own(desk: Desk, tmp_path: Path) -> None:
    """A worker sees the root's handle and its own socket: none of another worker, command or checkout."""
    with (tmp_path / "other").open("w"):
        desk.submit(1, "nap", ms=50)
        desk.submit(2, "handles")
        desk.run_until(2)
    found = desk.answers[2]["result"]
    # Three streams, the root, the socket, and the folder that was being listed.
    assert len([handle for handle in found["open"] if handle > 2 and handle != found["root"]]) == 2


def test_workers_die_with_their_keeper(tmp_path: Path) -> None:
    """R2: a keeper that is killed leaves no worker behind."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            desk = Desk(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
            desk.submit(1, "hang")
            os.write(writing, b"started")
            desk.loop.run()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 7) == b"started"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # The worker closed all but its own descriptors, so the pipe's end says nothing of it; its parent does.
    deadline = time.monotonic() + 5
    while _children_of_nobody(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _children_of_nobody(pid) == []
    os.close(reading)


def _children_of_nobody(keeper: int) -> list[int]:
    """Processes in the dead keeper's session group that still run (they kept its process group)."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[2]) == keeper:
                found.append(int(entry.name))
    return found
