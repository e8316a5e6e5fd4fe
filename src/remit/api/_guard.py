"""The outermost layer of every door: who may knock, how much may be sent, and what an error looks like."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from starlette.responses import Response

from remit.api._problems import known_error
from remit.api._protocol import BROKEN
from remit.api._settings import DoorSettings
from remit.api._traffic import Traffic
from remit.errors import (
    Forbidden,
    MalformedRequest,
    PayloadTooLarge,
    RemitError,
    TooSlow,
    UnknownHost,
    UnsupportedMedia,
)
from remit.primitives import Ids

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse: TypeAlias = Callable[[Scope, RemitError], Response]
"""The answer for an error; the request's id stands in the scope."""

ACTING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods that act: a page of another origin may not use them."""
_ONCE: Final = frozenset(
    {b"host", b"authorization", b"content-length", b"content-type", b"origin", b"transfer-encoding"}
)
_LINGER_BYTES: Final = 8 * 1024 * 1024
_LINGER_S: Final = 1.0
_JSON: Final = re.compile(
    rb'application/(?:[a-z0-9.+-]+\+)?json(?:\s*;\s*charset="?utf-8"?)?\s*\Z', re.IGNORECASE
)
_FORM: Final = re.compile(rb"application/x-www-form-urlencoded(?:\s*;.*)?\Z", re.IGNORECASE)
_COMMON_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


class Guard:
    """Lets a request through to the doors, or answers it.

    Args:
        app: The doors.
        settings: Bounds and names.
        ids: Where request ids come from.
        traffic: Where answers are counted.
        refuse: Puts an error into the form of the path that it happened on.
        takes_form: Whether a path takes a page's form. Such a path takes nothing else, and only from a page
            of our own: any site can post a form without asking.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        settings: DoorSettings,
        ids: Ids,
        traffic: Traffic,
        refuse: Refuse,
        takes_form: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._takes_form = takes_form
        self._settings = settings
        self._ids = ids
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"a door for HTTP got a connection of type {scope['type']}")
        exchange = _Exchange(scope, receive, send, settings=self._settings, request_id=self._ids.new("req"))
        scope["remit.request_id"] = exchange.request_id
        with self._traffic.request() as counted:
            try:
                scope["remit.headers"] = exchange.check(form=self._takes_form(scope["path"]))
                await self._app(scope, exchange.receive, exchange.send)
            except Exception as error:  # noqa: BLE001 - a request has an answer, whatever happens
                await exchange.refuse(known_error(error), self._refuse)
            finally:
                counted(scope.get("remit.operation"), exchange.status)


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, settings: DoorSettings, request_id: str
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._settings = settings
        self.request_id = request_id
        self.status: int | None = None
        """Of the answer; None: none was begun."""
        self._left_bytes = settings.max_body_bytes
        self._ends = asyncio.get_running_loop().time() + settings.body_timeout_s
        self._whole = False

    # ---- what is looked at before anything is read

    def check(self, *, form: bool) -> Mapping[bytes, bytes]:
        """The headers, if the request may come in.

        Args:
            form: It is to be a page's form.

        Raises:
            RequestError: It may not.
        """
        headers: dict[bytes, bytes] = {}
        for name, value in self._scope["headers"]:
            if name in _ONCE and name in headers:
                raise MalformedRequest(f"the header {name.decode('latin-1')} stands twice")
            headers[name] = value
        if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            raise MalformedRequest("of the transfer encodings only `chunked` is taken")
        self._check_host(headers.get(b"host"))
        if self._scope["method"] in ACTING:
            self._check_origin(headers, form=form)
            self._check_body(headers, form=form)
        return headers

    def _check_host(self, host: bytes | None) -> None:
        if host is None or host.decode("latin-1").lower() not in self._settings.hosts:
            raise UnknownHost(
                "the request's Host isn't one of this host's names; list it in [host] allowed_hosts"
            )

    def _check_origin(self, headers: Mapping[bytes, bytes], *, form: bool) -> None:
        origin = headers.get(b"origin")
        if form and origin is None and headers.get(b"sec-fetch-site") != b"same-origin":
            raise Forbidden("this form comes from a page of this host only")
        if origin is not None and origin.decode("latin-1") not in self._settings.allowed_origins:
            raise Forbidden("a page of another origin may not do this")
        if origin is None and headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}:
            raise Forbidden("a page of another site may not do this")

    def _check_body(self, headers: Mapping[bytes, bytes], *, form: bool) -> None:
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or len(length) > 18):
            raise MalformedRequest("content-length isn't a number of bytes")
        if length is not None and int(length) > self._settings.max_body_bytes:
            raise self._too_large()
        has_body = b"transfer-encoding" in headers or (length is not None and int(length) > 0)
        media = headers.get(b"content-type", b"")
        if has_body and form and not _FORM.match(media):
            raise UnsupportedMedia("this path takes the form of its page")
        if has_body and not form and not _JSON.match(media):
            raise UnsupportedMedia("send JSON, with `Content-Type: application/json`")
        if has_body and headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMedia("send the body as it is, without a content encoding")

    def _too_large(self) -> PayloadTooLarge:
        bound = self._settings.max_body_bytes
        return PayloadTooLarge(f"the body is larger than {bound} bytes", bound=bound)

    # ---- what goes through

    async def receive(self) -> Message:
        """The next piece of the body, within its bounds; after the body, whatever comes."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(f"the body didn't come within {self._settings.body_timeout_s:g} s") from None
        if self._scope.get(BROKEN):
            raise MalformedRequest("the body's framing can't be read")
        if message["type"] == "http.disconnect":
            self._whole = True
            raise MalformedRequest("the connection ended within the body")
        if message["type"] == "http.request":
            self._left_bytes -= len(message.get("body", b""))
            if self._left_bytes < 0:
                raise self._too_large()
            self._whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Pass an answer on, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ())]
            present = {name.lower() for name, _ in headers}
            headers += [pair for pair in _COMMON_HEADERS if pair[0] not in present]
            headers.append((b"x-request-id", self.request_id.encode("ascii")))
            if b"cache-control" not in present:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, error: RemitError, form: Refuse) -> None:
        """Answer with an error; once an answer was begun its connection is cut instead."""
        if self.status is not None:
            raise ConnectionAbortedError(f"the answer broke off: {error.code}")
        await self._answer(form(self._scope, error), unread=error.status in {408, 413})

    async def _answer(self, response: Response, *, unread: bool) -> None:
        start = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
        await self.send(start)
        body = b"" if self._scope["method"] == "HEAD" else bytes(response.body)
        await self._send({"type": "http.response.body", "body": body, "more_body": unread})
        if unread:
            await self._linger()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _linger(self) -> None:
        """Let a sender who hasn't finished see the answer before the connection closes; not for long."""
        taken = 0
        try:
            async with asyncio.timeout(_LINGER_S):
                while taken < _LINGER_BYTES:
                    message = await self._receive()
                    taken += len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return
