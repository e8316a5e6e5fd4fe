"""The embedding API without an event loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from host_kit import FAILS, THINKS, WAITS, make_config, request
from remit import HostStatus, RunCancelled, RunExpired, RunFailed, SyncHost, SyncRun, SyncScope
from remit.contract import RunView
from remit.errors import ConfigError, InvalidRequest, MisuseError, NotFound
from remit.events import Event
from remit.runs import Scope


@pytest.fixture
def host(tmp_path: Path) -> Generator[SyncHost]:
    with SyncHost(make_config(tmp_path)) as made:
        yield made


def until(run: SyncRun, type_: str) -> None:
    """Return once the run has had such an event."""
    for event in run.events():
        if event.type == type_:
            return
    raise AssertionError(f"no {type_}")


def test_sync_run_from_start_to_end(host: SyncHost) -> None:
    """The same calls, each waited for: started, followed, looked at, waited for."""
    assert host.status is HostStatus.READY
    assert host.swept == ()
    run = host.start(request())
    seen = [event for event in run.events() if event.seq is not None]
    view = run.wait()
    assert view.output == "a.txt is new."
    assert seen[-1].data == view.to_json()
    assert run.view() == run.ended() == host.find_run(run.id) == host.get_run(run.id).view() == view
    assert [event.seq for event in run.events(after=3) if event.seq][:1] == [4]
    assert host.find_run("nobody") is None
    assert repr(run) == f"SyncRun({run.id!r})"
    assert host.residencies == {}


def test_sync_errors_are_those_of_the_host(host: SyncHost) -> None:
    """Whatever the host raises is raised here, by the call that it belongs to."""
    with pytest.raises(InvalidRequest):
        host.start({"prompt": ""})
    with pytest.raises(MisuseError):
        host.start(cast("Any", "do it"))
    with pytest.raises(MisuseError):
        host.start(request(), scope=cast("Any", Scope()))
    with pytest.raises(NotFound):
        host.get_run("nobody")
    with pytest.raises(NotFound):
        host.cancel("nobody")
    with pytest.raises(RunFailed):
        host.run(request(FAILS))
    with pytest.raises(RunExpired):
        host.run(request(THINKS), deadline=timedelta(milliseconds=300))
    with pytest.raises(MisuseError):
        host.open_run("a").events(after=-1)


def test_sync_in_a_forked_process(host: SyncHost) -> None:
    """A host's thread doesn't come along: the child is told and doesn't wait; the parent goes on."""
    with pytest.raises(MisuseError):
        host.open_run("a").ended(timeout_s=cast("Any", "soon"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads: that is the case here
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            host.find_run("a")
        except MisuseError as error:
            os._exit(42 if "forked" in error.message else 1)
        except BaseException:  # noqa: BLE001 - the parent is told by the code
            os._exit(2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert host.run(request()).output == "a.txt is new."


def test_sync_cancel(host: SyncHost) -> None:
    """A cancel waits for the receipt; a scope ends what was started in it; a late one changes nothing."""
    scope = SyncScope()
    run, other = host.start(request(WAITS), scope=scope), host.start(request(WAITS))
    for one in (run, other):
        until(one, "tool.started")
    outcome = other.cancel(reason="enough")
    assert outcome.changed
    assert outcome.receipt is not None
    assert outcome.receipt.complete
    assert scope.abort("no need")
    assert scope.aborted
    with pytest.raises(RunCancelled):
        run.wait()
    assert not run.cancel_nowait()
    assert not run.acknowledge()
    again = host.cancel(other.id)
    assert getattr(again, "run", None) == outcome.run


def test_sync_waits_have_an_end(host: SyncHost) -> None:
    """A wait that took too long is given up; the run goes on."""
    run = host.start(request(WAITS))
    run.input("Mind the tabs.")
    for wait in (run.wait, run.ended):
        with pytest.raises(TimeoutError) as raised:
            wait(timeout_s=0.1)
        assert not isinstance(raised.value, RunExpired)
    assert not run.view().status.ended


def test_sync_callback(host: SyncHost) -> None:
    """A callback is called on the host's thread: what waits is refused there, what doesn't is allowed."""
    found: list[object] = []

    def on_event(event: Event) -> None:
        if event.type != "tool.started":
            return
        found.append(threading.current_thread().name)
        run = host.open_run(event.run_id)
        with pytest.raises(MisuseError):
            run.cancel()
        found.append(run.cancel_nowait(reason="seen enough"))

    run = host.start(request(WAITS), on_event=on_event)
    with pytest.raises(RunCancelled):
        run.wait()
    assert found == ["remit host", True]


def test_sync_from_many_threads(host: SyncHost) -> None:
    """Its methods may be called from any thread, at once."""
    views: list[RunView] = []

    def run(number: int) -> None:
        views.append(host.run(request(id=f"run-{number}")))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(view.id for view in views) == [f"run-{number}" for number in range(4)]
    assert all(view.output == "a.txt is new." for view in views)


def test_sync_drain(host: SyncHost) -> None:
    """It takes no more, and ends what runs at the deadline."""
    run = host.start(request(WAITS))
    host.drain(within_ms=100)
    assert host.status is HostStatus.DRAINING
    with pytest.raises(RunCancelled):
        run.wait()


def test_sync_host_is_closed(tmp_path: Path) -> None:
    """Before and after its block every call is misuse; leaving it ends what runs; its thread is gone."""
    host = SyncHost(make_config(tmp_path))
    with pytest.raises(MisuseError, match="with"):
        host.start(request())
    before = threading.active_count()
    with host:
        run = host.start(request(WAITS))
        events = run.events()
        next(events)
    assert threading.active_count() <= before
    for call in (run.view, run.wait, run.cancel, run.acknowledge, lambda: host.find_run("a")):
        with pytest.raises(MisuseError):
            call()
    events.close()  # type: ignore[attr-defined] - it is a generator
    with pytest.raises(MisuseError, match="once"), host:
        pass
    with SyncHost(make_config(tmp_path)) as again:
        view = again.get_run(run.id).ended()
        assert view.terminal is not None
        assert view.terminal.code == "drain"


def test_sync_opening_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes out of the `with`, and no thread is left."""

    async def broken(*_: object, **__: object) -> None:
        raise ConfigError("no")

    monkeypatch.setattr("remit.host._host.sweep_dead_runs", broken)
    before = threading.active_count()
    with pytest.raises(ConfigError), SyncHost(make_config(tmp_path)):
        pass
    assert threading.active_count() <= before
    with pytest.raises(MisuseError):
        SyncHost(cast("Any", None))


PROGRAM = """
import sys, remit
from host_kit import make_config, request, WAITS
from pathlib import Path

def tell(event):
    if event.type == "tool.started":
        print("working", flush=True)

with remit.SyncHost(make_config(Path(sys.argv[1]))) as host:
    try:
        CALL
    except KeyboardInterrupt:
        view = host.find_run("mine")
        print("status", view.status.value, view.terminal and view.terminal.code, flush=True)
view = None
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ('host.run(request(WAITS, id="mine"), on_event=tell)', "status cancelled caller"),
        ('host.start(request(WAITS, id="mine"), on_event=tell).wait()', "status working None"),
    ],
)
def test_sync_ctrl_c(tmp_path: Path, call: str, status: str) -> None:
    """R9: Ctrl-C ends a wait, and what `run` owns with it; leaving the block ends the rest."""
    program = PROGRAM.replace("CALL", call)
    tests = str(Path(__file__).resolve().parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": tests, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "working"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert rest.splitlines() == [status, "closed"]
        assert process.returncode == 0
        assert time.monotonic() - began < 10
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
