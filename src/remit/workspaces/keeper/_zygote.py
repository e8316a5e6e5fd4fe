"""The zygote: forks a keeper for every checkout that the node asks for, and dies with the node.

It adopts the orphans of its keepers. A child that isn't a keeper is what a dead keeper left behind in a
moment before the kernel's parent-death signal was set, so it is killed; nothing slips through between.
"""

from __future__ import annotations

import array
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from remit.workspaces.keeper import _cgroups, _forsaken, _processes, _syscalls
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._plan import CheckoutPlan
from remit.workspaces.keeper._probing import probe
from remit.workspaces.keeper._protocol import Decoder
from remit.workspaces.keeper._rehearsal import rehearse
from remit.workspaces.keeper._session import adopt, keep
from remit.workspaces.keeper._workers import Operation, close_all_but

_MESSAGE_BYTES: Final = 64
_ORDER_TIMEOUT_S: Final = 20.0
_SWEEP_AGAIN_S: Final = 0.005
_REHEARSE_AFTER_S: Final = 1.0
"""Not at once: the first checkout of a short run would wait for it."""
_LAST_SWEEPS: Final = 400
_EMPTY_SWEEPS: Final = 2


class Zygote:
    """Listens for sockets: each gets a process of its own, whose order comes over that socket."""

    def __init__(self, control: socket.socket, operations: Mapping[str, Operation]) -> None:
        self._control = control
        self._operations = operations
        self._loop = Loop()
        self._keepers: dict[int, int] = {}
        """Process id of each keeper, and the handle that tells of its end."""
        self._alive = True
        self._guard = 0

    def run(self, node: int) -> None:
        """Serves until the node closes its end or dies; then ends everything below."""
        _syscalls.become_subreaper()
        try:
            # Not the parent-death signal: that comes when the *thread* that started us ends. This comes when
            # the process does, also where some other child of the node still holds the socket.
            self._loop.watch(os.pidfd_open(node), readable=self._loop.stop)
        except OSError:
            return
        if os.getppid() != node:
            return
        self._guard = _forsaken.start_guard()
        self._loop.watch(self._control.fileno(), readable=self._read)
        _forsaken.end_forsaken()
        gc.freeze()  # what is here now is shared with every keeper; a collection would only copy it
        self._loop.after(_REHEARSE_AFTER_S, self._rehearse)
        try:
            self._loop.run()
        finally:
            if self._alive:
                self._end_everything()

    def _rehearse(self) -> None:
        rehearse()
        gc.collect()
        gc.freeze()

    def _read(self) -> None:
        size = array.array("i").itemsize
        try:
            data, attached, _, _ = self._control.recvmsg(
                _MESSAGE_BYTES, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            data, attached = b"", []
        if not data:
            self._loop.stop()
            return
        handles = array.array("i")
        for level, kind, payload in attached:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                handles.frombytes(payload[: len(payload) - len(payload) % size])
        if len(handles) == 1:
            with socket.socket(fileno=handles[0]) as link:
                self._fork(link)

    def _fork(self, link: socket.socket) -> None:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            return  # the node sees its end of the socket close
        if pid == 0:
            self._alive = False
            self._become_keeper(link, zygote=zygote)
        handle = os.pidfd_open(pid)
        self._keepers[pid] = handle
        self._loop.watch(handle, readable=lambda: self._keeper_ended(pid))

    def _become_keeper(self, link: socket.socket, *, zygote: int) -> None:
        code = 1
        try:
            adopt(zygote)
            close_all_but({0, 1, 2, link.fileno()})
            wanted = _read_order(link)
            if wanted is None:
                pass  # the node has changed its mind
            elif "probe" in wanted:
                probe(link, wanted["probe"])
            else:
                keep(link, CheckoutPlan.from_json(wanted["open"]), self._operations, zygote=zygote)
            code = 0
        except BaseException:  # noqa: BLE001  whatever it is: the zygote's own code must not run on here
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _keeper_ended(self, pid: int) -> None:
        handle = self._keepers.pop(pid)
        self._loop.unwatch(handle)
        os.close(handle)
        os.waitpid(pid, 0)
        self._sweep()

    def _sweep(self, empty: int = 0) -> None:
        """Kills what a dead keeper left, until twice in a row nothing was found: one look may miss one."""
        empty = 0 if self._kill_strangers() else empty + 1
        if empty < _EMPTY_SWEEPS:
            self._loop.after(_SWEEP_AGAIN_S, lambda: self._sweep(empty))

    def _kill_strangers(self) -> int:
        ours = {*self._keepers, self._guard}
        strangers = [pid for pid in _processes.children_of(os.getpid()) if pid not in ours]
        for pid in strangers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return len(strangers)

    def _end_everything(self) -> None:
        for pid in list(self._keepers):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._keepers.clear()
        self._guard = 0  # a stranger from here on: it goes with the rest
        for _ in range(_LAST_SWEEPS):
            # An empty list of children proves nothing: one may have come while it was read. ECHILD does.
            # Who ends here hands its own children to us, so there may be more each time.
            self._kill_strangers()
            if _all_reaped():
                break
            time.sleep(_SWEEP_AGAIN_S)
        _cgroups.remove_pids_folder(os.getpid())


def _all_reaped() -> bool:
    """Reaps what has ended; whether there is no child any more, ended or not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _read_order(link: socket.socket) -> dict[str, Any] | None:
    """The first frame on a new socket; None: it closed before."""
    link.settimeout(_ORDER_TIMEOUT_S)
    decoder = Decoder()
    while data := link.recv(65_536):
        for frame in decoder.feed(data):
            link.setblocking(False)
            return frame.body
    return None


def hello(control: socket.socket) -> None:
    """The first word of the zygote: it is there."""
    control.send(b"ready")
