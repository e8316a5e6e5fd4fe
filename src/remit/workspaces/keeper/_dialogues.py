"""A program that is talked to: bytes in by its stdin, bytes out by its stdout, for as long as it runs.

Its stdout waits in the pipe until the node asks for it, so a program that says more than is heard is held up
by itself, and nothing grows. Its stderr is always drained; the last of it is kept.
"""

from __future__ import annotations

import base64
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from remit.workspaces.keeper._commands import Command, Stream
from remit.workspaces.keeper._confinement import Ending

_AHEAD_BYTES: Final = 262_144
"""How much is read before the node has asked for it."""
_REST_BYTES: Final = 2_097_152
"""How much is read after its end: more than a pipe can hold."""
_HEARD_BYTES: Final = 262_144
"""How much is handed over at once."""
_READ_BYTES: Final = 65_536
_STDOUT: Final = 1

Reply = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class _Saying:
    """Bytes on their way into the program."""

    left: memoryview
    reply: Reply


class Dialogue(Command):
    """One program that is talked to, from its start to its result.

    The result is that of a command, with `rest`: what it had said and nobody had heard yet.
    """

    _stdin = -1

    def start(self) -> None:
        """Starts the program; a start that fails is a result like any other."""
        self._sayings: deque[_Saying] = deque()
        self._heard = bytearray()
        self._hearer: Reply | None = None
        super().start()

    def _open_stdin(self) -> int:
        theirs, self._stdin = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._stdin, False)
        return theirs

    # ---- into the program

    def say(self, data: bytes, reply: Reply) -> None:
        """Writes to the program; answered when all of it is in the pipe, or it reads no more."""
        self._sayings.append(_Saying(memoryview(data), reply))
        self._write()

    def _write(self) -> None:
        while self._sayings:
            saying = self._sayings[0]
            if self._stdin < 0:
                self._refuse_sayings()
                return
            try:
                written = os.write(self._stdin, saying.left)
            except BlockingIOError:
                self._loop.watch(self._stdin, writable=self._write)
                return
            except OSError:
                self._close_stdin()
                return
            saying.left = saying.left[written:]
            if not saying.left:
                self._sayings.popleft()
                saying.reply({"result": {}})
        if self._stdin >= 0:
            self._loop.unwatch(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.unwatch(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
        self._refuse_sayings()

    def _refuse_sayings(self) -> None:
        while self._sayings:
            message = f"{self.order.call_id} reads no more"
            self._sayings.popleft().reply({"error": {"status": "failed", "message": message}})

    # ---- out of the program

    def hear(self, reply: Reply) -> None:
        """Answers with what the program says next; with nothing once it says no more."""
        if self._hearer is not None:
            reply({"error": {"status": "conflict", "message": "somebody is listening already"}})
            return
        self._hearer = reply
        self._hand_over()

    def _hand_over(self) -> None:
        closed = self._streams[0].handle < 0
        if self._hearer is None or not (self._heard or closed):
            return
        data = bytes(self._heard[:_HEARD_BYTES])
        del self._heard[:_HEARD_BYTES]
        hearer, self._hearer = self._hearer, None
        self._watch(self._streams[0])
        hearer({"result": {"data": base64.b64encode(data).decode("ascii")}})

    def _watch(self, stream: Stream) -> None:
        waiting = stream.source == _STDOUT and len(self._heard) >= _AHEAD_BYTES
        if not waiting or stream.handle < 0:
            super()._watch(stream)
        elif self._state.ending is None:
            self._loop.unwatch(stream.handle)  # it waits until somebody listens
        elif len(self._heard) >= _REST_BYTES:
            self._close_stream(stream)  # more than a pipe holds: somebody else writes to it

    def _read(self, stream: Stream) -> None:
        if stream.source != _STDOUT:
            super()._read(stream)
            return
        try:
            data = os.read(stream.handle, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close_stream(stream)
            self._finish_when_complete()
            return
        self._heard += data
        self._watch(stream)
        self._hand_over()

    def _close_stream(self, stream: Stream) -> None:
        super()._close_stream(stream)
        if stream.source == _STDOUT:
            self._hand_over()

    # ---- the end

    def stop(self, *, grace_s: float, tell: Callable[[dict[str, Any]], None]) -> None:
        """Lets the program see the end of its input, asks it to end, and kills it after the grace."""
        self._close_stdin()
        super().stop(grace_s=grace_s, tell=tell)

    def _processes_ended(self, ending: Ending) -> None:
        self._close_stdin()
        super()._processes_ended(ending)
        self._watch(self._streams[0])  # a pipe holds little, and nobody is left to write to it

    def _result(self, ending: Ending) -> dict[str, Any]:
        rest = base64.b64encode(bytes(self._heard)).decode("ascii")
        return {**super()._result(ending), "rest": rest}
