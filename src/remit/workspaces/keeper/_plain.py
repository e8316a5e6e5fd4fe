"""A command without namespaces: held by Landlock, by the surrounding container, or by nothing.

A small supervisor is forked for each command. It adopts whatever the command leaves behind and, at the end,
kills its own descendants again and again until none is left. Nothing keeps a command from killing or stopping
its supervisor; what that leaves comes to the keeper, which ends it itself.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from remit.workspaces.keeper import _mounts, _processes, _syscalls
from remit.workspaces.keeper._confinement import Ending, Streams, WhenEnded
from remit.workspaces.keeper._landlock import Confinement, confine
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._plan import Limits
from remit.workspaces.keeper._workers import close_all_but

_REAP_EVERY_S: Final = 1.0
_SWEEP_PAUSE_S: Final = 0.002
_MAX_LEFTOVERS: Final = 32
_OBEY_S: Final = 0.25
"""How long a supervisor may sweep before it is taken for stopped, and killed: the keeper goes on then."""
_EMPTY_LOOKS: Final = 2
"""One look may miss a process that is just being handed up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainOrder:
    """What one unconfined command is started with."""

    argv: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    limits: Limits
    cpu_seconds: int
    tree: str
    root: str
    confinement: Confinement | None = None
    """What holds it; None: nothing."""
    bound: bool
    """Whether the tree must first be shown at `root`, in a mount namespace of the command's own."""


class PlainProcesses:
    """The processes of one unconfined command, below a supervisor."""

    def __init__(
        self,
        loop: Loop,
        order: PlainOrder,
        when_ended: WhenEnded,
        *,
        own_children: Callable[[], Collection[int]],
    ) -> None:
        self._loop = loop
        self._order = order
        self._when_ended = when_ended
        self._own_children = own_children
        """The children that the keeper has started itself; others are what a dead supervisor left."""
        self._orphaned = False
        self._supervisor = 0
        self._lifeline = -1
        self._report_pipe = -1
        self._report = b""

    def start(self, streams: Streams) -> None:
        """Forks the supervisor, which starts the command.

        Raises:
            OSError: There is no room for another process; nothing is left open.
        """
        lifeline, self._lifeline = os.pipe2(os.O_CLOEXEC)
        self._report_pipe, report = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._report_pipe, False)
        try:
            self._supervisor = os.fork()
            if self._supervisor == 0:
                _Supervisor(self._order, streams, lifeline=lifeline, report=report).live()
        except OSError:
            self._let_go()
            os.close(self._report_pipe)
            raise
        finally:
            os.close(lifeline)
            os.close(report)
        self._loop.watch(self._report_pipe, readable=self._read_report)

    def pids(self) -> tuple[int, ...]:
        """Every process of the command that runs now."""
        if self._orphaned:
            return tuple(process.pid for process in self._find_orphans())
        if not self._supervisor:
            return ()
        return tuple(process.pid for process in _processes.descendants_of(self._supervisor))

    def own_children(self) -> tuple[int, ...]:
        """The children of the keeper that hold it."""
        return (self._supervisor,) if self._supervisor else ()

    def ask_to_end(self) -> None:
        """TERM to the command, to those in its process group, and to what was orphaned."""
        inside = _processes.descendants_of(self._supervisor) if self._supervisor else ()
        asked = [process for process in inside if process.parent == self._supervisor]
        groups = {process.group for process in asked}
        asked += [process for process in inside if process.group in groups and process not in asked]
        for process in asked:
            _processes.send_signal(process, signal.SIGTERM)

    def end(self) -> None:
        """Lets the supervisor sweep everything away; one that doesn't was stopped, and is killed."""
        self._let_go()
        self._loop.after(_OBEY_S, self._end_supervisor)

    def _let_go(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _end_supervisor(self) -> None:
        if self._supervisor:
            os.kill(self._supervisor, signal.SIGKILL)

    def _read_report(self) -> None:
        try:
            data = os.read(self._report_pipe, 65_536)
        except BlockingIOError:
            return
        self._report += data
        if data:
            return
        self._loop.unwatch(self._report_pipe)
        os.close(self._report_pipe)
        self._let_go()
        os.waitpid(self._supervisor, 0)  # after this the kernel has handed its children up
        self._supervisor = 0
        ending = _ending(self._report)
        if ending is not None:
            self._when_ended(ending)
            return
        self._orphaned = True
        left = self._find_orphans()
        shown = tuple(_processes.describe(process) for process in left[:_MAX_LEFTOVERS])
        # Not a failed start: the command may have run for long, and had effects.
        self._end_orphans(Ending(signal=signal.SIGKILL, leftovers=shown))

    def _find_orphans(self) -> list[_processes.Process]:
        """What was handed up to the keeper, and all below it."""
        ours = self._own_children()
        found: list[_processes.Process] = []
        for pid in _processes.children_of(os.getpid()):
            process = _processes.read_process(pid) if pid not in ours else None
            if process is not None:
                found += [process, *_processes.descendants_of(pid)]
        return found

    def _end_orphans(self, ending: Ending, empty: int = 0) -> None:
        """Kills what a dead supervisor left, until nothing is seen twice in a row; then tells of the end."""
        orphans = self._find_orphans()
        for process in orphans:
            if process.parent == os.getpid() and process.ended:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            else:
                _processes.send_signal(process, signal.SIGKILL)
        empty = 0 if orphans else empty + 1
        if empty < _EMPTY_LOOKS:
            self._loop.after(_SWEEP_PAUSE_S, lambda: self._end_orphans(ending, empty))
            return
        self._orphaned = False
        self._when_ended(ending)


def _ending(report: bytes) -> Ending | None:
    """What the supervisor has said; None: it was killed before it could."""
    try:
        said: dict[str, Any] = json.loads(report)
    except ValueError:
        return None
    return Ending(
        exit_code=said["exit_code"],
        signal=said["signal"],
        leftovers=tuple(said["leftovers"]),
        problem=said["problem"],
    )


class _Supervisor:
    """The forked process; it never returns into the keeper's code."""

    def __init__(self, order: PlainOrder, streams: Streams, *, lifeline: int, report: int) -> None:
        self._order = order
        self._streams = streams
        self._lifeline = lifeline
        self._report = report

    def live(self) -> NoReturn:
        # No parent-death signal: when the keeper dies the lifeline ends, and there is still sweeping to do.
        answer: dict[str, Any] = {"exit_code": None, "signal": None, "leftovers": [], "problem": None}
        try:
            streams = self._streams
            # 0 to 2 stay taken: the command's streams replace them, so they must not become our pipes.
            close_all_but(
                {0, 1, 2, streams.stdin, streams.stdout, streams.stderr, self._lifeline, self._report}
            )
            _syscalls.become_subreaper()
            command = self._start()
            for handle in (streams.stdin, streams.stdout, streams.stderr):
                os.close(handle)
            answer.update(self._wait(command))
        except OSError as error:
            answer["problem"] = f"it couldn't be started: {error}"
        finally:
            sweep()
            with suppress(OSError):
                os.write(self._report, json.dumps(answer).encode())
            sys.stderr.flush()
            os._exit(0)

    def _start(self) -> int:
        """Starts the command in a session of its own; what fails before it runs is raised here."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            self._become_command(writing)
        os.close(writing)
        with open(reading, "rb") as pipe:
            failure = pipe.read()
        if failure:
            os.waitpid(pid, 0)
            raise OSError(failure.decode("utf-8", "replace"))
        return pid

    def _become_command(self, failure: int) -> NoReturn:
        order, streams = self._order, self._streams
        try:
            os.setsid()
            for target, handle in enumerate((streams.stdin, streams.stdout, streams.stderr)):
                os.dup2(handle, target)
            if order.bound:
                _syscalls.unshare(_syscalls.CLONE_NEWNS)
                _mounts.bind(Path(order.tree), Path(order.root))
            os.chdir(order.folder)
            _set_limits(order.limits, order.cpu_seconds)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if order.confinement is not None:
                confine(order.confinement)
            os.execvpe(order.argv[0], order.argv, order.environment)
        except OSError as error:
            os.write(failure, f"{error.filename or order.argv[0]}: {error.strerror}".encode())
        finally:
            os._exit(127)

    def _wait(self, command: int) -> dict[str, Any]:
        """Waits for the command to end, or for the keeper to want it ended."""
        handle = os.pidfd_open(command)
        while True:
            ready, _, _ = select.select([handle, self._lifeline], [], [], _REAP_EVERY_S)
            if ready:
                break
            _reap_all_but(command)
        if handle not in ready:
            sweep()
        _, status = _wait_for(command)
        left = _processes.descendants_of(os.getpid()) if handle in ready else ()
        signalled = os.WIFSIGNALED(status)
        return {
            "exit_code": None if signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signalled else None,
            "leftovers": [_processes.describe(process) for process in left[:_MAX_LEFTOVERS]],
        }


_ended: dict[int, int] = {}
"""Wait statuses of children that were reaped on the way."""


def _wait_for(pid: int) -> tuple[int, int]:
    if pid in _ended:
        return pid, _ended[pid]
    return os.waitpid(pid, 0)


def _reap_all_but(command: int) -> None:
    for pid in _processes.children_of(os.getpid()):
        if pid != command:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def sweep() -> None:
    """Kills every descendant of this process, until there is none; a subreaper's orphans come to it."""
    while True:
        for process in _processes.descendants_of(os.getpid()):
            _processes.send_signal(process, signal.SIGKILL)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                _ended[pid] = status
        except ChildProcessError:
            return
        time.sleep(_SWEEP_PAUSE_S)


def _set_limits(limits: Limits, cpu: int) -> None:
    wanted = (
        (resource.RLIMIT_FSIZE, limits.max_file_bytes),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
    )
    # No bound on processes here: without a user namespace it would count all of the user's.
    for kind, value in wanted:
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
