"""The MCP servers of a checkout: one process each, started at its first use, and again when it has ended."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import itertools
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from remit.contract import StoppedCall
from remit.errors import NodeError
from remit.primitives import Clock
from remit.workspaces._command import CommandSpec, Stopped
from remit.workspaces._failures import KeeperLost, WorkspaceOperationError
from remit.workspaces._mcp_results import McpFailed, McpResult
from remit.workspaces._mcp_settings import McpServer
from remit.workspaces._mcp_tools import ListedTool, Listing, list_offers
from remit.workspaces._network import Network, wider_network

if TYPE_CHECKING:
    from remit.workspaces._mcp_session import McpProgram, McpSession

__all__ = ["Listings", "McpServers", "ServerCommand", "server_commands"]

_LIFE_MS: Final = 7 * 24 * 3_600_000
"""A server lives as long as its checkout; this only bounds one whose end was missed."""
_STDERR_BYTES: Final = 65_536
_UNCONFINED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR")
"""What a server outside the sandbox gets of the node's environment without being named."""
_LISTINGS: Final = 64


class ServingCheckout(Protocol):
    """What is needed of a checkout."""

    async def converse(self, spec: CommandSpec) -> McpProgram:
        """Starts a program that is talked to."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server as it is started in one workspace."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    network: Network
    confined: bool
    start_timeout_ms: int

    def spec(self, number: int) -> CommandSpec:
        """The command, as the checkout knows it."""
        return CommandSpec(
            call_id=f"mcp/{self.name}/{number}",
            argv=self.argv,
            cwd=self.cwd,
            environment=self.environment,
            timeout_ms=_LIFE_MS,
            max_output_bytes=_STDERR_BYTES,
            network=self.network,
            confined=self.confined,
        )

    def digest(self) -> str:
        """The same for servers that are started alike."""
        facts = [self.name, self.argv, self.cwd, dict(self.environment), self.network, self.confined]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def server_commands(
    servers: Mapping[str, McpServer],
    wanted: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str,
    network: Network,
) -> dict[str, ServerCommand]:
    """How each server of a workspace is started.

    Args:
        servers: All that are configured.
        wanted: Those that the workspace names.
        environment: The node's own, of which a server gets what is allowed.
        cwd: The run's working folder, from the root.
        network: What the workspace's commands reach.

    Raises:
        NodeError: One that is named isn't configured on this node.
    """
    commands: dict[str, ServerCommand] = {}
    for name in wanted:
        server = servers.get(name)
        if server is None:
            raise NodeError(f"this node has no MCP server {name!r}", reason="unavailable")
        allowed = (*server.environment_allowlist, *(() if server.sandbox else _UNCONFINED))
        inherited = {variable: environment[variable] for variable in allowed if variable in environment}
        commands[name] = ServerCommand(
            name=name,
            argv=(server.command, *server.args),
            cwd=cwd if server.sandbox else "",
            environment=inherited | server.environment,
            network=wider_network(network, server.network),
            confined=server.sandbox,
            start_timeout_ms=server.start_timeout_ms,
        )
    return commands


async def _load_sessions() -> type[McpSession]:
    """The SDK's side of it, imported in a thread when it is first needed: it takes half a second.

    Raises:
        NodeError: The SDK isn't installed.
    """
    try:
        module = await asyncio.to_thread(importlib.import_module, "remit.workspaces._mcp_session")
    except ImportError as error:
        message = f"MCP servers need the extra `mcp`: pip install 'remit[mcp]' ({error})"
        raise NodeError(message, reason="unavailable") from None
    return module.McpSession


class McpServers:
    """The servers of one checkout. Calls may run at the same time.

    Args:
        checkout: Where they run.
        commands: How each is started, by name.
        clock: For durations.
    """

    def __init__(
        self, checkout: ServingCheckout, commands: Mapping[str, ServerCommand], *, clock: Clock
    ) -> None:
        self._checkout = checkout
        self._commands = commands
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sessions: dict[str, McpSession] = {}
        self._starting = {name: asyncio.Lock() for name in commands}
        self.started_count = 0
        """Processes started so far."""

    async def call(self, tool: ListedTool, arguments: Mapping[str, Any], *, limit_ms: int) -> McpResult:
        """Use a tool once.

        Args:
            tool: Which.
            arguments: Its arguments; the server itself checks them.
            limit_ms: For all of it, the start of the server included.

        Raises:
            McpFailed: The server can't be used, refused, or took too long.
            KeeperLost: The checkout is gone.

        Cancellation: the server is told, once, and stays; one that was just starting is ended.
        """
        try:
            async with asyncio.timeout(limit_ms / 1000):
                session = await self._get(tool.server)
                return await session.call(tool.name, arguments)
        except TimeoutError:
            raise McpFailed(
                f"timed out after {limit_ms} ms; the server was told", status="timed_out"
            ) from None

    async def list_tools(self, server: str) -> Listing:
        """What a server offers, made fit for a model.

        Raises:
            McpFailed: It can't be used.
        """
        session = await self._get(server)
        offers = await session.list_tools(timeout_s=self._commands[server].start_timeout_ms / 1000)
        return list_offers(server, offers)

    async def _get(self, server: str) -> McpSession:
        async with self._starting[server]:
            session = self._sessions.get(server)
            if session is not None and not session.ended:
                return session
            if session is not None:
                await session.aclose()
            session = self._sessions[server] = await self._start(self._commands[server])
            return session

    async def _start(self, command: ServerCommand) -> McpSession:
        sessions = await _load_sessions()
        try:
            program = await self._checkout.converse(command.spec(next(self._numbers)))
        except WorkspaceOperationError as error:
            raise McpFailed(f"the MCP server {command.name} can't be started: {error.message}") from None
        self.started_count += 1
        return await sessions.start(command.name, program, timeout_s=command.start_timeout_ms / 1000)

    async def stop_all(self) -> tuple[StoppedCall, ...]:
        """End every server that runs; the next use starts one anew. Answers when their processes are gone."""
        began = self._clock.monotonic()
        stopped: list[StoppedCall] = []
        sessions, self._sessions = self._sessions, {}
        for name, session in sessions.items():
            how = await self._stop(session)
            if how is not None:
                ms = int((self._clock.monotonic() - began) * 1000)
                stopped.append(
                    StoppedCall(
                        stage_id="", tool_call_id="", label=f"mcp {name}", how=how.how, ms=ms, pids=how.pids
                    )
                )
        return tuple(stopped)

    async def _stop(self, session: McpSession) -> Stopped | None:
        try:
            return await session.aclose()
        except KeeperLost:  # and with it the server
            return None


class Listings:
    """What servers offer, asked for once per base and way of starting them, while this process lives.

    A listing must be known before a run's first prompt, and stay the same for all of it. It is taken in a
    scratch checkout, where servers see the base as the run's own will see it.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Listing, ...]] = OrderedDict()

    def find(self, key: str) -> tuple[Listing, ...] | None:
        """The listings kept under a key."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def keep(self, key: str, listings: tuple[Listing, ...]) -> None:
        """Keep them; the one that wasn't asked for longest goes."""
        self._known[key] = listings
        while len(self._known) > _LISTINGS:
            self._known.popitem(last=False)

    @staticmethod
    def key(base: str, commands: Mapping[str, ServerCommand]) -> str:
        """What a listing hangs on: the base with all that its checkouts show, and how the servers start."""
        return "\0".join([base, *(command.digest() for command in commands.values())])

    @staticmethod
    async def ask(
        checkout: ServingCheckout, commands: Mapping[str, ServerCommand], *, clock: Clock
    ) -> tuple[Listing, ...]:
        """Start each server, ask what it offers, and end it.

        Raises:
            NodeError: One can't be used; the message says which and why.
        """
        servers = McpServers(checkout, commands, clock=clock)
        try:
            return tuple([await servers.list_tools(name) for name in commands])
        except McpFailed as failed:
            raise NodeError(failed.message, reason="unavailable") from None
        finally:
            await servers.stop_all()
