"""One command in a bubblewrap of its own.

    keeper ── bubblewrap's monitor ── init (pid 1 of a new pid namespace) ── the command (pid 2) ── ...

The monitor writes init's pid to a status pipe, then waits. Init prepares the sandbox and blocks until we
let it go on; before that its limits are set. When the command ends the monitor exits at once and the kernel
kills the namespace, so nobody could say what was left running. Hence the monitor is stopped (SIGSTOP) while
the command runs: we see the command end ourselves, look at what is left, kill init (with it the whole
namespace), and let the monitor go on to tell the exit code. A stopped monitor still dies with us, and init
with it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remit.workspaces.keeper import _forsaken, _processes, _syscalls
from remit.workspaces.keeper._confinement import Ending, PidsGroup, Streams, WhenEnded
from remit.workspaces.keeper._exit_info import signal_that_ended, wait_status
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._plan import Limits

if TYPE_CHECKING:
    from remit.workspaces.keeper._proxy import ProxyProcess

_LOOK_AGAIN_S = 0.000_2
_LOOK_SLOWLY_S = 0.016
_SURE_LOOKS = 4
_STUCK_S = 2.0
_MAX_LEFTOVERS = 32
# A sandboxed command is the first to go when the machine runs out of memory, never the node.
_FIRST_TO_GO = "500"
_COMMAND_PID = 2
"""The command's number in its namespace: the first process that init starts, and the kernel doesn't give low
numbers out twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailOrder:
    """What one bubblewrap is started with."""

    program: str
    options: tuple[str, ...]
    argv: tuple[str, ...]
    seccomp: bytes
    limits: Limits
    cpu_seconds: int
    cgroup: str | None
    name: str
    """Unique in the cgroup folder."""
    mark: str
    """Which zygote it belongs to; what ends it where all of ours are killed at once."""
    hosts: tuple[str, ...] | None = None
    """Hosts that it may reach through a proxy; None: there is no proxy."""


class Jail:
    """The processes of one sandboxed command."""

    def __init__(self, loop: Loop, order: JailOrder, when_ended: WhenEnded) -> None:
        self._loop = loop
        self._order = order
        self._when_ended = when_ended
        self._monitor: subprocess.Popen[bytes] | None = None
        self._monitor_handle = -1
        self._monitor_held = False
        self._status_pipe = -1
        self._status = b""
        self._gate = -1
        self._init_pid = 0
        self._init_handle = -1
        self._init_gone = False
        self._command_handle = -1
        self._wait_status: int | None = None
        """How the command ended, where init is killed before it may have told that."""
        self._asleep = 0
        """How often in a row init was seen asleep, with the command reaped."""
        self._killed = False
        self._leftovers: tuple[str, ...] = ()
        self._group: PidsGroup | None = None
        self._signal: int | None = None
        self._proxy: ProxyProcess | None = None
        self._problem: str | None = None

    # ---- starting

    def start(self, streams: Streams) -> None:
        """Starts bubblewrap; the command itself runs once its limits are set."""
        self._status_pipe, status_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._status_pipe, False)
        gate_end, self._gate = os.pipe2(os.O_CLOEXEC)
        theirs = [status_end, gate_end]
        try:
            if self._order.cgroup:
                self._group = PidsGroup(
                    self._order.cgroup, self._order.name, max_processes=self._order.limits.max_processes
                )
            options = ["--json-status-fd", str(status_end), "--block-fd", str(gate_end), *self._order.options]
            # Init (and not the command) holds the gate's other end too: else it would take our death for the
            # word to go on, where node, zygote and keeper are killed at once and nobody is left to end it.
            options += ["--sync-fd", str(self._gate)]
            if self._order.seccomp:
                theirs.append(_in_memory("filter", self._order.seccomp))
                options += ["--seccomp", str(theirs[-1])]
            # In a file and not as arguments: other users of the machine can read a process's arguments.
            theirs.append(_in_memory("options", b"".join(_option(word) for word in options)))
            self._monitor = subprocess.Popen(
                [self._order.program, "--args", str(theirs[-1]), "--", *self._order.argv],
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                pass_fds=(*theirs, self._gate),
                preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - a keeper has one thread
                env={_forsaken.MARK: self._order.mark},  # bubblewrap's own; the command's is another
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._forget_all()
            raise
        finally:
            for handle in theirs:
                os.close(handle)
        self._monitor_handle = os.pidfd_open(self._monitor.pid)
        self._loop.watch(self._monitor_handle, readable=self._monitor_exited)
        self._loop.watch(self._status_pipe, readable=self._read_status)

    def _read_status(self) -> None:
        self._drain_status()
        if not self._init_pid and self._monitor is not None:
            pid = _find(self._status, "child-pid")
            if pid:
                self._init_started(pid)

    def _drain_status(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._status_pipe, 4096):
                self._status += data
            self._loop.unwatch(self._status_pipe)

    def _init_started(self, pid: int) -> None:
        try:
            self._init_handle = os.pidfd_open(pid)
        except OSError:
            return  # it's gone already; the monitor will say so
        self._init_pid = pid
        self._loop.watch(self._init_handle, readable=self._init_exited)
        if self._killed:
            self.end()
            return
        self._hold_monitor(_LOOK_AGAIN_S)

    def _hold_monitor(self, delay_s: float) -> None:
        """Stops the monitor as soon as it sleeps; from then on it has no part in the sandbox's start."""
        if self._killed or self._monitor is None:
            return
        seen = _processes.read_process(self._monitor.pid)
        if seen is None or seen.ended:
            return
        if seen.state != "S":
            self._loop.after(delay_s, lambda: self._hold_monitor(min(_LOOK_SLOWLY_S, delay_s * 2)))
            return
        self._monitor_held = True
        os.kill(self._monitor.pid, signal.SIGSTOP)
        self._let_go()

    def _let_go(self) -> None:
        """Sets the limits on init, which all its descendants inherit, and opens its gate."""
        try:
            self._limit(self._init_pid)
        except OSError:
            if not self._init_gone:  # an unbounded command must not run
                self.end()
            return
        if self._order.hosts is None:
            self._open_gate()
            return
        # Later: few commands need it, and every keeper would pay for what it imports.
        from remit.workspaces.keeper._proxy import ProxyProcess  # noqa: PLC0415  see above

        self._proxy = ProxyProcess(self._loop, self._order.hosts)
        self._proxy.start(self._init_pid, when_ready=self._proxy_ready)

    def _proxy_ready(self, problem: str | None) -> None:
        if self._killed or self._init_gone:
            return
        if problem is None:
            self._open_gate()
            return
        self._problem = f"its proxy doesn't start: {problem}"
        self.end()

    def _open_gate(self) -> None:
        with suppress(BrokenPipeError):
            os.write(self._gate, b"\n")
        self._close_gate()
        self._loop.after(_LOOK_AGAIN_S, lambda: self._look_for_command(_LOOK_AGAIN_S))

    def _limit(self, pid: int) -> None:
        limits = self._order.limits
        cpu = self._order.cpu_seconds
        if self._group is not None:
            self._group.add(pid)
        # NPROC counts in the sandbox's own user namespace, from init on.
        resource.prlimit(
            pid, resource.RLIMIT_NPROC, _no_more(pid, resource.RLIMIT_NPROC, limits.max_processes)
        )
        resource.prlimit(
            pid, resource.RLIMIT_FSIZE, _no_more(pid, resource.RLIMIT_FSIZE, limits.max_file_bytes)
        )
        resource.prlimit(pid, resource.RLIMIT_CPU, _no_more(pid, resource.RLIMIT_CPU, cpu))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_GO)

    # ---- running

    def _look_for_command(self, delay_s: float) -> None:
        """Finds the command's process, to be told of its end; soon there, unless it has ended already."""
        if self._command_handle >= 0 or self._init_gone or self._killed:
            return
        children = _processes.children_of(self._init_pid)
        if children:
            # One that isn't among them has ended, unless it was left out as others came and went.
            if self._watch_command(children):
                return
            if not self._watch_command(_processes.scan_for_children(self._init_pid)):
                self._command_ended()
            return
        self._loop.after(delay_s, lambda: self._look_for_command(min(_LOOK_SLOWLY_S, delay_s * 2)))

    def _watch_command(self, children: Sequence[int]) -> bool:
        """Has itself told of the command's end, if it is among them."""
        for pid in children:
            if _processes.inner_pid(pid) == _COMMAND_PID:
                with suppress(OSError):
                    self._command_handle = os.pidfd_open(pid)
                    self._loop.watch(self._command_handle, readable=self._command_ended)
                    return True
        return False

    def _command_ended(self) -> None:
        if self._command_handle >= 0:
            self._loop.unwatch(self._command_handle)
        if self._killed or self._init_gone:
            return
        left = _processes.descendants_of(self._init_pid)
        self._leftovers = tuple(_processes.describe(process) for process in left[:_MAX_LEFTOVERS])
        if len(left) > _MAX_LEFTOVERS:
            self._leftovers += (f"and {len(left) - _MAX_LEFTOVERS} more",)
        self._end_when_told(_LOOK_AGAIN_S)

    def _end_when_told(self, delay_s: float) -> None:
        """Kills what is left once the exit code is known; alone, init ends by itself."""
        if self._killed or self._init_gone:
            return
        if self._is_told() and _processes.children_of(self._init_pid):
            if self._command_handle >= 0:
                self._wait_status = wait_status(self._command_handle)
            self.end()
            return
        self._loop.after(delay_s, lambda: self._end_when_told(min(_LOOK_SLOWLY_S, delay_s * 2)))

    def _is_told(self) -> bool:
        """Whether the exit code doesn't hang on init any more."""
        if self._command_handle >= 0 and wait_status(self._command_handle) is not None:
            return True
        # A kernel that doesn't tell: init reaps the command, passes its exit code on, and only then sleeps
        # again. In this order: else it may have slept before it reaped. And more than once: a process is
        # shown as asleep already while it reaps.
        reaped = self._command_handle < 0 or _processes.is_reaped(self._command_handle)
        init = _processes.read_process(self._init_pid)
        self._asleep = self._asleep + 1 if reaped and init is not None and init.state == "S" else 0
        return self._asleep >= _SURE_LOOKS

    def pids(self) -> tuple[int, ...]:
        """Every process inside that runs now; before there is an inside, bubblewrap's own."""
        if not self._init_pid:
            return (self._monitor.pid,) if self._monitor is not None else ()
        if self._init_gone:
            return ()
        inside = tuple(process.pid for process in _processes.descendants_of(self._init_pid))
        return inside or (self._init_pid,)

    def own_children(self) -> tuple[int, ...]:
        """Bubblewrap's monitor, and the proxy."""
        monitor = self._monitor.pid if self._monitor is not None else 0
        proxy = self._proxy.pid if self._proxy is not None else 0
        return tuple(pid for pid in (monitor, proxy) if pid)

    def ask_to_end(self) -> None:
        """TERM to the command, to those in its process group, and to what was orphaned to init."""
        inside = _processes.descendants_of(self._init_pid) if self._init_pid else ()
        if not inside:
            self.end()
            return
        asked = [process for process in inside if process.parent == self._init_pid]
        groups = {process.group for process in asked}
        asked += [process for process in inside if process.group in groups and process not in asked]
        for process in asked:
            _processes.send_signal(process, signal.SIGTERM)

    def end(self) -> None:
        """Kills init, and with it everything in the namespace."""
        self._killed = True
        if self._init_handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_handle, signal.SIGKILL)
            self._release_monitor()
        self._loop.after(_STUCK_S, self._end_monitor)

    # ---- ending

    def _init_exited(self) -> None:
        self._init_gone = True
        self._loop.unwatch(self._init_handle)
        if self._command_handle >= 0:
            self._loop.unwatch(self._command_handle)
        self._release_monitor()
        self._finish_when_gone()

    def _release_monitor(self) -> None:
        if self._monitor_held and self._monitor is not None:
            self._monitor_held = False
            os.kill(self._monitor.pid, signal.SIGCONT)

    def _end_monitor(self) -> None:
        if self._monitor is not None and self._monitor.returncode is None:
            self._monitor.kill()

    def _monitor_exited(self) -> None:
        self._loop.unwatch(self._monitor_handle)
        if self._monitor is not None:
            self._monitor.wait()
        self._drain_status()
        self._finish_when_gone()

    def _finish_when_gone(self) -> None:
        if self._monitor is None or self._monitor.returncode is None:
            return
        if self._init_handle >= 0 and not self._init_gone:
            return
        if self._command_handle >= 0:
            self._signal = signal_that_ended(self._command_handle)
        ending = self._ending()
        self._monitor = None
        self._forget_all()
        self._when_ended(ending)

    def _ending(self) -> Ending:
        code = _find(self._status, "exit-code")
        if self._wait_status is not None:
            code = _exit_code_of(self._wait_status)
        if self._problem is not None:
            return Ending(problem=self._problem)
        if code is None and not self._killed:
            return Ending(problem="the sandbox couldn't start it")
        denied: tuple[str, ...] = ()
        if self._proxy is not None:
            self._proxy.end()
            denied = tuple(self._proxy.denials)
        return Ending(exit_code=code, signal=self._signal, leftovers=self._leftovers, denied=denied)

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _forget_all(self) -> None:
        self._close_gate()
        if self._proxy is not None:
            self._proxy.end()
            self._proxy = None
        for name in ("_status_pipe", "_monitor_handle", "_init_handle", "_command_handle"):
            handle = getattr(self, name)
            if handle >= 0:
                self._loop.unwatch(handle)
                os.close(handle)
                setattr(self, name, -1)
        if self._group is not None:
            self._remove_group(self._group, tries=50)
            self._group = None

    def _remove_group(self, group: PidsGroup, *, tries: int) -> None:
        # An ended process is counted until the kernel has let go of it, a little after it can be waited for.
        if not group.remove() and tries:
            self._loop.after(0.02, lambda: self._remove_group(group, tries=tries - 1))


def _exit_code_of(status: int) -> int:
    """As bubblewrap and shells tell it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _dying_with(keeper: int) -> Callable[[], None]:
    """Has bubblewrap die with the keeper from its first moment on: it asks for that itself, but late.

    It costs a plain fork, about 1 ms; without it a command went on where all of ours were killed at once.
    """

    def die_with_keeper() -> None:
        _syscalls.die_with_parent(signal.SIGKILL, parent=keeper)

    return die_with_keeper


def _option(word: str) -> bytes:
    if "\0" in word:  # it would end there, and what follows would be an option of its own
        raise ValueError("embedded null character")
    return os.fsencode(word) + b"\0"


def _in_memory(name: str, content: bytes) -> int:
    """A file that lives as long as it is open, at its beginning."""
    handle = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _no_more(pid: int, kind: int, value: int) -> tuple[int, int]:
    """The limit `value`, or what the process already has where that is less."""
    _, hard = resource.prlimit(pid, kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return bound, bound


def _find(status: bytes, key: str) -> int | None:
    """The value of a key in the JSON documents that bubblewrap has written."""
    decoder = json.JSONDecoder()
    text = status.decode("utf-8", "replace").lstrip()
    while text:
        try:
            document, end = decoder.raw_decode(text)
        except ValueError:
            return None
        if key in document:
            return int(document[key])
        text = text[end:].lstrip()
    return None
