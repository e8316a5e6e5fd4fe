"""One life of a node's process, from the host's side: from its start until all that hung on it is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from io import FileIO
from types import TracebackType
from typing import Final, Self

from remit.errors import NodeError
from remit.node_agent._spare import Begun, NodeProgram, take_spare
from remit.runs import despite_cancel

__all__ = ["NodeChild", "is_kept"]

_log = logging.getLogger("remit.node")
_KEPT: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"),
    }
)
"""What the interpreter itself needs. All else that a node is to know is told over the socket."""
_LINE_BYTES: Final = 8_192
_READ_BYTES: Final = 65_536
_END_S: Final = 10.0
"""How long what hung on a dead node may take to be gone; the kernel needs milliseconds."""
_LAST_WORDS_S: Final = 1.0
"""How long what a dead node wrote is waited for."""


class NodeChild:
    """A process that has one end of a socket pair. After its `async with` block it is dead and waited for.

    What it writes goes to the log, a line each, with its pid.
    """

    def __init__(self) -> None:
        self.end: socket.socket
        """The host's end. Whoever uses it closes it."""
        self.pid = 0
        self.last_words = ""
        """The last line that it wrote."""
        self._process: NodeProgram
        self._handle = -1
        self._group: asyncio.TaskGroup
        self._told: asyncio.ReadTransport
        self._telling: asyncio.Task[None]
        self._keepers: list[int] = []

    async def __aenter__(self) -> Self:
        stream = asyncio.StreamReader()
        # Not in a helper's thread: the kernel ties the node's life to the thread that begins it.
        begun = take_spare() or _begin()
        self.end, self._process, self.pid = begun.end, begun.process, begun.process.pid
        self._told, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), FileIO(begun.words, "r")
        )
        self._handle = os.pidfd_open(self.pid)
        self._group = await asyncio.TaskGroup().__aenter__()
        self._telling = self._group.create_task(self._tell(stream), name=f"what node {self.pid} writes")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end.close()
        await despite_cancel(self._see_off())

    def follow_keeper(self, pid: int) -> None:
        """All processes of runs hang on this one: it is waited for, too."""
        with suppress(OSError):
            self._keepers.append(os.pidfd_open(pid))

    def kill(self) -> None:
        """End it now; whatever it does."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self, *, within_s: float) -> str | None:
        """How it ended, in words; None: it lives."""
        if not await _gone(self._handle, within_s=within_s):
            return None
        code = self._process.wait()
        await asyncio.wait({self._telling}, timeout=_LAST_WORDS_S)
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}" + (f": {self.last_words}" if code and self.last_words else "")

    async def _see_off(self) -> None:
        """Bounded: what the node had started, and left behind, may hold its pipe for ever."""
        self.kill()
        if await _gone(self._handle, within_s=_END_S):
            self._process.wait()
        os.close(self._handle)
        await asyncio.wait({self._telling}, timeout=_LAST_WORDS_S)
        self._telling.cancel()
        await self._group.__aexit__(None, None, None)
        self._told.close()
        keepers, self._keepers = self._keepers, []
        for handle in keepers:
            if not await _gone(handle, within_s=_END_S):
                _log.warning("what hung on a node that has died isn't gone after %d s", int(_END_S))
            os.close(handle)

    async def _tell(self, stream: asyncio.StreamReader) -> None:
        """Read all that there is, also where nobody wants it: a full pipe would stop the node."""
        line = b""
        while data := await stream.read(_READ_BYTES):
            *lines, line = (line + data).split(b"\n")
            if len(line) > _LINE_BYTES:
                lines, line = [*lines, line], b""
            for one in lines:
                self._say(one)
        self._say(line)

    def _say(self, line: bytes) -> None:
        text = line[:_LINE_BYTES].decode("utf-8", "replace").rstrip()
        shown = "".join(character if character.isprintable() else "\ufffd" for character in text)
        if shown:
            self.last_words = shown[:500]
            _log.warning("node %d: %s", self.pid, shown)


def is_kept(name: str) -> bool:
    """Whether a node's process is to have a variable of its host's."""
    return name in _KEPT or name.startswith(("LC_", "XDG_"))


def _begin() -> Begun:
    """Start a fresh interpreter.

    Raises:
        NodeError: It can't be started.
    """
    if not sys.executable:
        raise NodeError(
            "a node's process needs a Python interpreter, and none is known", reason="unavailable"
        )
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            return Begun(_start(theirs, writing), end=ours, words=reading)
    except BaseException as error:
        ours.close()
        os.close(reading)
        if not isinstance(error, OSError):
            raise
        raise NodeError(
            f"the node's process can't be started: {error.strerror}", reason="unavailable"
        ) from None
    finally:
        os.close(writing)


def _start(theirs: socket.socket, words: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-P", "-m", "remit.node_agent", str(theirs.fileno()), str(os.getpid())),
        stdin=subprocess.DEVNULL,
        stdout=words,
        stderr=words,
        pass_fds=(theirs.fileno(),),
        env={name: value for name, value in os.environ.items() if is_kept(name)},
        cwd="/",
        start_new_session=True,  # a Ctrl-C is the host's to answer
    )


async def _gone(handle: int, *, within_s: float) -> bool:
    """Whether a process has ended, or does in time."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, lambda: ended.done() or ended.set_result(None))
    try:
        async with asyncio.timeout(within_s):
            await ended
    except TimeoutError:
        return False
    else:
        return True
    finally:
        loop.remove_reader(handle)
