"""The keeper's end of its socket to the node: frames in, frames out, never blocking."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final

from remit.workspaces.keeper import _syscalls
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._protocol import Decoder, Frame, FrameTooLarge, encode

_READ_BYTES: Final = 262_144
_SLOW_BYTES: Final = 1_048_576
_LARGE_BYTES: Final = 131_072
"""After a message of this size the memory that it took is given back."""


class Channel:
    """One framed stream socket."""

    def __init__(
        self,
        loop: Loop,
        link: socket.socket,
        *,
        on_frame: Callable[[Frame], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._link = link
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._decoder = Decoder()
        self._outgoing = bytearray()
        self._closing = False
        link.setblocking(False)
        self._watch()

    @property
    def slow(self) -> bool:
        """Whether the other end doesn't keep up; what may be dropped should be."""
        return len(self._outgoing) > _SLOW_BYTES

    def send(self, number: int, body: dict[str, Any]) -> None:
        """Sends one message; one that is too large becomes an error of its call alone."""
        try:
            data = encode(number, body)
        except FrameTooLarge as error:
            data = encode(number, {"error": {"status": "too_large", "message": str(error)}})
        self._outgoing += data
        if len(data) > _LARGE_BYTES:
            # A keeper lives as long as its run, and the C library keeps what was freed. In the next round:
            # whoever sends still holds what the message was made of.
            self._loop.after(0, _syscalls.give_back_memory)
        self._write()

    def close_when_sent(self) -> None:
        """Closes once everything has been handed to the kernel."""
        self._closing = True
        self._write()

    def _watch(self) -> None:
        writable = self._write if self._outgoing else None
        self._loop.watch(self._link.fileno(), readable=self._read, writable=writable)

    def _read(self) -> None:
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.unwatch(self._link.fileno())
            self._on_closed()
            return
        for frame in self._decoder.feed(data):
            self._on_frame(frame)

    def _write(self) -> None:
        while self._outgoing:
            try:
                sent = self._link.send(self._outgoing)
            except BlockingIOError:
                break
            except OSError:  # the reader notices that the link is gone
                self._outgoing.clear()
                break
            del self._outgoing[:sent]
        if self._closing and not self._outgoing:
            self._loop.unwatch(self._link.fileno())
            self._link.close()
            self._on_closed()
            return
        self._watch()
