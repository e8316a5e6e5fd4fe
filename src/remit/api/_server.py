"""The process's server: sockets, connections, and their end. Signals belong to whoever runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Generator
from types import TracebackType
from typing import Final, Self

import uvicorn

from remit.api._app import App
from remit.api._protocol import BoundedProtocol
from remit.errors import ConfigError

_END_WITHIN_S: Final = 5
_STARTS_WITHIN_S: Final = 10.0
_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its hands on the process's signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them to their owner."""
        yield


class DoorServer:
    """Serves an app on a socket for the length of a block.

    Leaving the block ends open streams first, lets other answers finish for a moment, and returns: no
    connection holds it up (R62).

    Args:
        app: The doors.
        listener: A bound socket; it is the server's from then on.
        certificate: With a key: the connections are TLS.
    """

    def __init__(
        self, app: App, listener: socket.socket, *, certificate: ssl.SSLContext | None = None
    ) -> None:
        self._app = app
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            loop="asyncio",
            lifespan="off",
            ws="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_END_WITHIN_S,
            ssl_context_factory=None if certificate is None else (lambda _config, _default: certificate),
        )
        self._server = _Server(config)
        self._group: asyncio.TaskGroup | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.getsockname()[1]

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._group.create_task(self._app.mcp.live(), name="sessions of MCP clients")
        self._group.create_task(self._server.serve([self._listener]), name="server")
        async with asyncio.timeout(_STARTS_WITHIN_S):
            await self._server.listens.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        self._app.streams.close_all()
        self._app.mcp.close()
        self._server.should_exit = True
        await group.__aexit__(None, None, None)  # what has happened in the block is the caller's to hear


def listen_on(address: str) -> socket.socket:
    """A bound socket for `HOST:PORT`; port 0 takes a free one.

    Raises:
        ConfigError: It can't be had.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"`{address}` isn't an address to listen on: {error.strerror}", param="host.listen"
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"can't listen on {address}: {error.strerror}; is another host there? (--listen HOST:PORT)",
            param="host.listen",
        ) from None
    return listener
