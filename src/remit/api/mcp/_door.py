"""`/mcp`: the tools over streamable HTTP, behind the same guard and keys as every other door."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from remit.api._guard import Receive, Scope, Send
from remit.api._keys import origin_of
from remit.api._operation import Doors
from remit.api.mcp._message import read_again, read_body, refusal_of
from remit.errors import Draining, MethodNotAllowed, PreconditionFailed, UnsupportedMedia

if TYPE_CHECKING:
    from remit.api._keys import Identity
    from remit.api.mcp._ports import ToolRuns

PATH: Final = "/mcp"
_METHODS: Final = frozenset({"GET", "POST", "DELETE"})
_IDENTITY: Final = "remit.identity"
_MOST_SESSIONS: Final = 1_000


class McpDoor:
    """The path, and the SDK's sessions behind it, which live for as long as somebody runs `live`.

    Nothing of the SDK is loaded before the first request.
    """

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._wanted = asyncio.Event()
        self._opened = asyncio.Event()
        self._closed = asyncio.Event()
        self._living = False
        self._manager: Any = None

    def routes(self) -> list[Route]:
        """The one path."""
        return [Route(PATH, self)]

    async def live(self) -> None:
        """Own the sessions until `close`; whatever they do then is cancelled, and waited for."""
        self._living = True
        try:
            await self._wanted.wait()
            if self._closed.is_set():
                return
            # The SDK takes up to a second to load: not on the loop that serves everybody else.
            self._manager = await asyncio.to_thread(self._make_manager)
            async with self._manager.run():
                self._opened.set()
                await self._closed.wait()
        finally:
            self._living = False
            self._opened.set()

    def close(self) -> None:
        """End every session, soon."""
        self._closed.set()
        self._wanted.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: who asks is known before anything of it is read."""
        scope["remit.operation"] = "mcp"
        identity = await self._doors.keyring.identify(scope["remit.headers"], origin=origin_of(scope))
        if scope["method"] not in _METHODS:
            raise MethodNotAllowed("this path takes DELETE, GET, POST", allow="DELETE, GET, POST")
        if scope["method"] == "POST" and b"content-type" not in scope["remit.headers"]:
            raise UnsupportedMedia("send JSON, with `Content-Type: application/json`")
        if find_spec("mcp") is None:
            raise PreconditionFailed("this host has no MCP door: pip install 'remit[mcp]' adds it")
        if scope["method"] == "POST":
            body = await read_body(receive)
            if (refusal := refusal_of(body)) is not None:
                await refusal(scope, receive, send)
                return
            receive = read_again(body, receive)
        self._wanted.set()
        if self._living:
            await self._opened.wait()
        if not self._living or self._closed.is_set():
            raise Draining("the host ends", retry_after_ms=5_000)
        self._doors.streams.check_room()
        scope[_IDENTITY] = identity
        scope["user"] = _user_of(identity)
        with self._doors.streams.counted():
            await self._manager.handle_request(scope, receive, send)

    def _make_manager(self) -> Any:
        from mcp.server.streamable_http_manager import (  # noqa: PLC0415 - heavy, and not everybody's
            StreamableHTTPSessionManager,
        )

        from remit.api.mcp._server import make_server  # noqa: PLC0415 - it loads the SDK

        host, settings = self._doors.host, self._doors.settings
        server = make_server(self._runs_of, ids=host.ids, clock=host.clock)
        return StreamableHTTPSessionManager(
            server, max_request_body_size=settings.max_body_bytes, max_sessions=_MOST_SESSIONS
        )

    def _runs_of(self, context: Any) -> ToolRuns:
        from remit.api.mcp._served import ServedRuns  # noqa: PLC0415 - with the rest of the door

        identity: Identity = context.request.scope[_IDENTITY]

        async def is_allowed() -> bool:
            return await self._doors.keyring.still(identity)

        return ServedRuns(self._doors.host, identity.caller, require=identity.require, is_allowed=is_allowed)


def _user_of(identity: Identity) -> Any:
    """Who asks, in the SDK's form: it binds a session to whoever opened it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415 - heavy, and not everybody's
    from mcp.server.auth.provider import AccessToken  # noqa: PLC0415 - as above

    key = identity.key
    token = AccessToken(token="", client_id=key.id, subject=key.tenant, scopes=list(key.scopes))
    return AuthenticatedUser(token)
