"""HTTP on one connection, with the bounds that uvicorn's own protocol doesn't have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_TIMEOUT_S: Final = 10.0
"""From the first sight of a connection, or of its next request, to the end of the head."""
WRITE_TIMEOUT_S: Final = 30.0
"""How long a reader may leave full buffers untouched."""
MAX_HEADER_BYTES: Final = 64 * 1024
SEND_BUFFER_BYTES: Final = 256 * 1024
"""Of the kernel's, per connection: left to itself it grows to megabytes for a reader that doesn't read."""
LINGER_S: Final = 1.0
"""How long who was refused may take to see it."""
BROKEN: Final = "remit.broken_body"
"""In a request's scope: what came after its head can't be read, and no more of it will."""
_OF_AN_UPGRADE: Final = frozenset({b"connection", b"http2-settings", b"upgrade"})


class BoundedProtocol(HttpToolsProtocol):
    """Cuts who sends its head too slowly or too long, and who reads too slowly."""

    header_timeout_s = HEADER_TIMEOUT_S
    write_timeout_s = WRITE_TIMEOUT_S
    send_buffer_bytes = SEND_BUFFER_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refused = False
        """Nothing more is read: it is only kept until an answer was seen."""
        self._offered = False
        """The head that was just read offers another protocol."""

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin: the first head is due."""
        super().connection_made(transport)
        self._set_up(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timers()
        super().connection_lost(exc)

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._write_timer = None

    # ---- heads

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that goes on for too long ends the connection."""
        if self._refused:
            return
        if self._in_head:
            if self._head_timer is None:
                self._expect_head()
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES + len(data):
                self._refuse(431, "headers_too_large", "the request's head is too large")
                return
        if not self.transport.is_closing():
            self._feed(data)
        if self._in_head and self._head_bytes > MAX_HEADER_BYTES and not self._refused:
            self._refuse(431, "headers_too_large", "the request's head is too large")

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as offer:
            if self._offered:
                self._pass_over_offer(data[offer.args[0] :])

    def _pass_over_offer(self, rest: bytes) -> None:
        """Read a request that offers another protocol, as some clients' first one does, as if it didn't.

        The parser takes what follows such a head for that protocol: body and next request would be lost, or
        the one be taken for the other.
        """
        self._offered = False
        method, version = self.parser.get_method(), self.parser.get_http_version().encode("ascii")
        kept = [(name, value) for name, value in self.headers if name not in _OF_AN_UPGRADE]
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in kept]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It has come."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._offered = True
            return
        self._in_head = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request has come; whatever comes next is a head."""
        if self._offered:
            return
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.header_timeout_s, self._head_overdue)

    def _head_overdue(self) -> None:
        self._head_timer = None
        if not self._in_head or self.transport.is_closing():
            return
        if not self._head_bytes:
            self.transport.close()  # nothing was begun
        elif self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn sets it from elsewhere
            self._refuse(408, "too_slow", "the request's head didn't come in time")

    # ---- slow readers

    def pause_writing(self) -> None:
        """The reader is behind."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.write_timeout_s, self._reader_overdue)

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _reader_overdue(self) -> None:
        self._write_timer = None
        self.transport.abort()

    # ---- what isn't HTTP

    def send_400_response(self, msg: str) -> None:
        """Answer what can't be parsed, in the form of every other error."""
        if not self._in_head and self._break_body():
            return
        self._refuse(400, "malformed_request", "this isn't an HTTP request that is taken")

    def _break_body(self) -> bool:
        """Let the request that goes on know that its body can't be read; it answers in its door's form."""
        cycle = self.cycle
        if cycle is None or cycle.response_started or self.transport.is_closing():  # pyright: ignore[reportUnnecessaryComparison] - uvicorn sets it from elsewhere
            return False
        self._refused = True
        cycle.scope[BROKEN] = True  # pyright: ignore[reportGeneralTypeIssues] - a key of ours
        cycle.keep_alive = False
        cycle.more_body = False
        cycle.message_event.set()
        return True

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer without a request, and end the connection."""
        self._stop_timers()
        if self.transport.is_closing():
            return
        phrases = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}
        body = json.dumps(
            {
                "type": f"https://remit.dev/errors/{code}",
                "title": phrases[status],
                "status": status,
                "code": code,
                "detail": detail,
                "param": None,
                "retryable": False,
                "request_id": "",
            },
            separators=(",", ":"),
        ).encode()
        head = (
            f"HTTP/1.1 {status} {phrases[status]}\r\n"
            "content-type: application/problem+json\r\n"
            "x-content-type-options: nosniff\r\n"
            f"content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self._refused = True
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn sets it from elsewhere
            self.transport.write(head.encode("ascii") + body)
            if self.transport.can_write_eof():
                # Closed at once, with bytes unread, the kernel would take the answer away from its reader.
                self.transport.write_eof()
                self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)
                return
        self.transport.close()

    def _set_up(self, transport: asyncio.Transport) -> None:
        """Bound what the kernel keeps, and have it say when a peer has vanished without a word."""
        found = transport.get_extra_info("socket")
        if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        with contextlib.suppress(OSError, AttributeError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            timeout_ms = int(self.write_timeout_s * 1000)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
