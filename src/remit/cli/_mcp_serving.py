"""What `remit mcp` does: an MCP server on stdin and stdout, in front of a host of its own or of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.admission import Caller
from remit.api.mcp import ToolRuns, claimed_wire, make_server, serve_streams
from remit.cli._remote import secret_for_host
from remit.cli._serving import ServeOptions, serve_settings
from remit.cli._signals import Signals
from remit.cli._words import log_to_stderr, say
from remit.client import AsyncClient
from remit.config import Config
from remit.contract import RunView
from remit.errors import ConfigError, NotFound, PreconditionFailed
from remit.events import Event
from remit.host import Host
from remit.primitives import SystemClock, SystemIds

if TYPE_CHECKING:
    from remit.api.mcp._stdio import Wire


def serve_mcp(
    *, host: str | None, workspace: str | None, config_file: Path | None, allow_unconfined: bool
) -> int:
    """Serve until the client leaves or a signal comes; returns the exit code.

    Args:
        host: Where a host is; None: one is opened in this process.
        workspace: Folder to work in, for a host of our own.
        config_file: The settings to use, for a host of our own.
        allow_unconfined: Whether commands may run without a sandbox.

    Raises:
        ConfigError: The settings don't allow it, or the SDK isn't installed.
        InvalidRequest: There is no key for the host.
    """
    if find_spec("mcp") is None:
        raise ConfigError("`remit mcp` needs the mcp extra: pip install 'remit[mcp]'")
    log_to_stderr()
    if host is not None:
        secret = secret_for_host()
        with claimed_wire() as wire:
            return asyncio.run(_serve_remote(host, secret, wire))
    options = ServeOptions(
        listen=None,
        workspace=workspace,
        config_file=config_file,
        drain=None,
        allow_plain_http=False,
        allow_unconfined=allow_unconfined,
    )
    config = serve_settings(options)
    with claimed_wire() as wire:
        return asyncio.run(_serve_own(config, wire))


async def _serve_own(config: Config, wire: Wire) -> int:
    from remit.api.mcp import ServedRuns  # noqa: PLC0415 - only a host in this process is served so

    stop = asyncio.Event()
    signals = Signals(stop=stop.set)
    with signals.handled():
        async with Host(config) as host:
            keeper = await host.node.service.get_keeper()
            signals.zygote_pid = lambda: keeper.pid
            for line in config.notes:
                say(line)
            runs = ServedRuns(host.door(), Caller())
            server = make_server(lambda context: runs, ids=host.ids, clock=host.clock)
            say("serving runs as MCP tools on stdin and stdout")
            await serve_streams(server, wire, stop=stop)
    return 0


async def _serve_remote(url: str, secret: str, wire: Wire) -> int:
    stop = asyncio.Event()
    with Signals(stop=stop.set).handled():
        async with AsyncClient(url, api_key=secret) as client:
            await client.read("host")  # whether there is a host, before anything is promised
            runs: ToolRuns = RemoteRuns(client)
            server = make_server(lambda context: runs, ids=SystemIds(), clock=SystemClock())
            say(f"serving the runs of {url} as MCP tools on stdin and stdout")
            await serve_streams(server, wire, stop=stop)
    return 0


class RemoteRuns:
    """Implements `ToolRuns` on a host that is reached over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def check(self) -> None:
        """The host itself looks at the key."""

    async def start(self, body: Mapping[str, Any]) -> RunView:
        """Start a run. Its id is in the body, so it may be sent again."""
        return await self._client.create(body)

    def events(self, run_id: str) -> AsyncGenerator[Event]:
        """The run's events, to its terminal."""
        return self._client.events(run_id)

    async def wait(self, run_id: str, *, wait_ms: int | None = None) -> RunView:
        """The run, once it has ended, or the time has run out."""
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                return await self._client.wait(run_id)
        except TimeoutError:
            return await self._client.get(run_id)

    async def get(self, run_id: str) -> RunView:
        """The run as it stands now."""
        return await self._client.get(run_id)

    async def patch(self, run_id: str) -> str | None:
        """The run's patch; None: it has none."""
        try:
            return await self._client.patch(run_id)
        except (NotFound, PreconditionFailed):
            return None

    async def cancel(self, run_id: str, *, reason: str | None, tombstone: bool = False) -> Mapping[str, Any]:
        """Stop a run; see `ToolRuns`."""
        answer = await self._client.cancel(run_id, reason=reason, tombstone=tombstone)
        return answer.model_dump(mode="json", by_alias=True)
