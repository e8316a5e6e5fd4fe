"""The first node of a served host: forked from the host while that is nothing yet, so that both share memory.

A fresh interpreter has everything that it loads for itself, some 27 MB; what is forked copies only what one
of the two changes. It is done before the host has threads, a loop, settings or an open file of its own. What
the host was started with stays with it: the child forgets its variables, also where `/proc` shows them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Protocol

__all__ = ["Begun", "NodeProgram", "forget_spare", "fork_spare", "take_spare"]

_NAME: Final = b"remit: node of %d"
_ARGUMENTS_FIELD: Final = 45
"""Of `/proc/PID/stat`, after the name: where the arguments begin and end, and the variables (proc(5))."""


class NodeProgram(Protocol):
    """A process that was begun, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def kill(self) -> None:
        """End it now.

        Raises:
            ProcessLookupError: It has ended.
        """
        ...

    def wait(self) -> int:
        """Its exit code, or the number of the signal that ended it, negative. Blocks until it has ended."""
        ...


class Begun:
    """A node's process that hasn't been told anything."""

    def __init__(self, process: NodeProgram, *, end: socket.socket, words: int) -> None:
        self.process = process
        self.end = end
        """The host's end of the socket. Whoever takes it closes it."""
        self.words = words
        """A descriptor: what it writes. Whoever takes it closes it."""


class _Forked:
    """A child that nobody but this object waits for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        """End it now."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


_waiting: list[Begun] = []
"""The one that was forked and that no host has taken."""


def fork_spare(main: Callable[[Sequence[str]], int], *, keep: Callable[[str], bool]) -> None:
    """Fork the process of a node, for the host that this process is about to open.

    Nothing is done where it can't be done safely, with more than one thread, say: then the node gets an
    interpreter of its own, as each later one does.

    Args:
        main: The node's program; everything that it needs should be loaded by now.
        keep: Whether the node may have a variable, by its name.
    """
    if _waiting or sys.platform != "linux" or len(os.listdir("/proc/self/task")) != 1:
        return
    try:
        (ours, theirs), (reading, writing) = socket.socketpair(), os.pipe()
    except OSError:
        return
    gc.collect()
    gc.freeze()  # a collection writes into whatever it looks at, and what is written isn't shared any more
    host_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        ours.close()
        return
    else:
        if pid == 0:
            _be_node(main, theirs.detach(), writing, host_pid=host_pid, keep=keep)
        _waiting.append(Begun(_Forked(pid), end=ours, words=reading))
    finally:
        os.close(writing)
        theirs.close()


def take_spare() -> Begun | None:
    """The node that was forked, once."""
    return _waiting.pop() if _waiting else None


def forget_spare() -> None:
    """End the one that nobody took."""
    begun = take_spare()
    if begun is not None:
        begun.end.close()
        os.close(begun.words)
        with suppress(ProcessLookupError):
            begun.process.kill()
        begun.process.wait()


# ---- in the child


def _be_node(
    main: Callable[[Sequence[str]], int],
    end: int,
    words: int,
    *,
    host_pid: int,
    keep: Callable[[str], bool],
) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a Ctrl-C is the host's to answer
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, source in enumerate((nothing, words, words)):
            os.dup2(source, number)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != end:
                with suppress(OSError):  # that of the list itself
                    os.close(number)
        os.chdir("/")
        if not sys.flags.safe_path:
            del sys.path[0]  # where the host was started, or its program lies: not for a node to load from
        _take_own_name(host_pid, {name: value for name, value in os.environ.items() if keep(name)})
        code = main((str(end), str(host_pid)))
    except BaseException:  # noqa: BLE001 - it isn't the host: nothing above this may go on
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _take_own_name(host_pid: int, variables: Mapping[str, str]) -> None:
    """Be called a node, and have these variables alone, for whoever looks into `/proc` too."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last, variables_at, variables_end = map(int, fields[_ARGUMENTS_FIELD : _ARGUMENTS_FIELD + 4])
    os.environ.clear()
    ctypes.memset(variables_at, 0, variables_end - variables_at)
    os.environ.update(variables)
    name = (_NAME % host_pid)[: max(0, last - first - 1)]
    ctypes.memset(first, 0, last - first)
    ctypes.memmove(first, name, len(name))
