"""Host epochs and locks, over processes that live and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remit.errors import PreconditionFailed, StorageBusy
from remit.primitives import SystemClock, SystemIds
from remit.storage import Epochs, FileLock, take_serve_lock
from remit.storage._locks import is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = """
import sys
from pathlib import Path
from remit.primitives import SystemClock, SystemIds
from remit.storage import Epochs
epoch = Epochs(Path(sys.argv[1]), clock=SystemClock(), ids=SystemIds()).start()
print(epoch.id, flush=True)
sys.stdin.read()
if "close" in sys.argv:
    epoch.close()
"""


@pytest.fixture
def epochs(tmp_path: Path) -> Epochs:
    return Epochs(tmp_path / "data", clock=SystemClock(), ids=SystemIds())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_an_epoch_lives_until_it_is_closed(epochs: Epochs, tmp_path: Path) -> None:
    """A dead epoch is one whose lock is free; another view of the folder sees the same."""
    elsewhere = Epochs(tmp_path / "data", clock=SystemClock(), ids=SystemIds())
    epoch = epochs.start()
    assert epochs.is_alive(epoch.id)
    assert elsewhere.is_alive(epoch.id)
    assert elsewhere.pid_of(epoch.id) == os.getpid()
    epoch.close()
    epoch.close()
    assert not epochs.is_alive(epoch.id)
    assert not elsewhere.is_alive(epoch.id)
    assert epochs.dead() == ()
    assert list((tmp_path / "data" / "epochs").iterdir()) == []


def test_each_start_is_a_new_epoch(epochs: Epochs) -> None:
    """Two hosts of one process are two epochs, each with its own life."""
    with epochs.start() as one, epochs.start() as two:
        assert one.id != two.id
        one.abandon()
        assert not epochs.is_alive(one.id)
        assert epochs.is_alive(two.id)
        assert epochs.dead() == (one.id,)


@pytest.mark.parametrize("unknown", ["epoch_never", "", "../serve", "a/b", "\x00", "epoch\ud800"])
def test_an_unknown_epoch_is_dead(epochs: Epochs, unknown: str) -> None:
    """Nobody can be waited for who isn't there; and an odd name is no path."""
    assert not epochs.is_alive(unknown)
    assert epochs.pid_of(unknown) is None


def test_a_killed_process_is_a_dead_epoch(epochs: Epochs, host: subprocess.Popen[str]) -> None:
    """R57: liveness is a lock, so no death can fake a life; the file tells who it was."""
    assert host.stdout is not None
    epoch_id = host.stdout.readline().strip()
    assert epochs.is_alive(epoch_id)
    host.send_signal(signal.SIGSTOP)
    assert epochs.is_alive(epoch_id), "a host that stands still may go on; it isn't dead"
    host.kill()
    host.wait(10)
    assert not epochs.is_alive(epoch_id)
    assert epochs.dead() == (epoch_id,)
    assert epochs.pid_of(epoch_id) == host.pid


FORKING = """
import os, signal, subprocess, sys
from pathlib import Path
from remit.primitives import SystemClock, SystemIds
from remit.storage import Epochs
epochs = Epochs(Path(sys.argv[1]), clock=SystemClock(), ids=SystemIds())
epoch = epochs.start()
started = subprocess.Popen(["sleep", "60"])
reading, writing = os.pipe()
forked = os.fork()
if forked == 0:
    os.write(writing, b".")
    signal.pause()
os.read(reading, 1)
epoch.abandon()
print(epochs.is_alive(epoch.id))
for pid in (started.pid, forked):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def test_children_dont_keep_an_epoch_alive(tmp_path: Path) -> None:
    """A command that outlives its host doesn't hold the host's lock; nor does a fork of it."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_asking_doesnt_take(epochs: Epochs, tmp_path: Path) -> None:
    """Who looks whether somebody is dead doesn't look alive to the next who asks."""
    path = tmp_path / "lock"
    lock = FileLock.try_take(path)
    assert lock is not None
    assert is_locked(path)
    assert is_locked(path)
    lock.release()
    assert not is_locked(path)
    assert FileLock.try_take(path) is not None


def test_a_lock_is_waited_for_with_patience(tmp_path: Path) -> None:
    """R59: a lock that is held too long is a clear error, and a free one is taken."""
    path = tmp_path / "lock"
    with FileLock.take(path, wait_ms=50), pytest.raises(StorageBusy):
        FileLock.take(path, wait_ms=50)
    with FileLock.take(path, wait_ms=50):
        pass


def test_one_serve_a_folder(tmp_path: Path) -> None:
    """Interfaces, section 9: `serve` alone holds the serve lock."""
    with take_serve_lock(tmp_path / "data"), pytest.raises(PreconditionFailed):
        take_serve_lock(tmp_path / "data")
    take_serve_lock(tmp_path / "data").release()


def test_the_dead_are_tidied_away(epochs: Epochs, tmp_path: Path) -> None:
    """However often hosts crash, the folder stays small, and the dead stay dead."""
    for _ in range(80):
        epochs.start().abandon()
    with epochs.start() as last:
        files = list((tmp_path / "data" / "epochs").iterdir())
        assert len(files) <= 70
        assert epochs.is_alive(last.id)
