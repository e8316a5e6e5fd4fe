"""The MCP servers that a node's workspaces name: what they offer, and those of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remit.primitives import Clock
from remit.workspaces._base_facts import facts_key
from remit.workspaces._checkout import Checkout
from remit.workspaces._mcp_servers import Listings, McpServers, ServerCommand, server_commands
from remit.workspaces._mcp_settings import McpServer
from remit.workspaces._mcp_tools import ListedTool
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._preparing import Preparer
from remit.workspaces._settings import WorkspaceSettings

__all__ = ["Plugins", "WorkspacePlugins"]

_LEFT_OUT_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePlugins:
    """What the servers of one workspace offer to a run."""

    commands: Mapping[str, ServerCommand]
    tools: tuple[ListedTool, ...] = ()
    notes: tuple[str, ...] = ()
    """Tools that aren't offered, and why."""

    def serve(self, checkout: Checkout, *, clock: Clock) -> McpServers:
        """The servers in a run's own checkout; none is started yet."""
        return McpServers(checkout, self.commands, clock=clock)


class Plugins:
    """The MCP servers of one node.

    Args:
        servers: All that are configured, by name.
        clock: For durations.
        environment: Of whoever works on this machine.
    """

    def __init__(
        self, servers: Mapping[str, McpServer], *, clock: Clock, environment: Mapping[str, str]
    ) -> None:
        self._servers = dict(servers)
        self._clock = clock
        self._environment = environment
        self._listings = Listings()

    def programs(self, settings: WorkspaceSettings) -> tuple[str, ...]:
        """The programs of a workspace's sandboxed servers: what they need is shown in its sandbox."""
        servers = [self._servers[name] for name in settings.mcp if name in self._servers]
        return tuple(server.command for server in servers if server.sandbox)

    async def list_tools(self, workspace: PreparedWorkspace, preparer: Preparer) -> WorkspacePlugins:
        """What a workspace's servers offer on this base; asked in a scratch checkout, once per base.

        Raises:
            NodeError: A server isn't configured, or can't be used; the message says which and why.

        Cancellation: the servers and the scratch checkout are ended first.
        """
        settings = workspace.settings
        commands = server_commands(
            self._servers,
            settings.mcp,
            environment=self._environment,
            cwd=workspace.subdir,
            network=settings.network,
        )
        if not commands:
            return WorkspacePlugins(commands={})
        key = Listings.key(facts_key(workspace), commands)
        listings = self._listings.find(key)
        if listings is None:
            async with preparer.scratches.opened(workspace) as checkout:
                listings = await Listings.ask(checkout, commands, clock=self._clock)
            self._listings.keep(key, listings)
        left_out = [text for listing in listings for text in listing.left_out]
        notes = [f"an MCP tool isn't offered: {text}" for text in left_out[:_LEFT_OUT_SHOWN]]
        if len(left_out) > _LEFT_OUT_SHOWN:
            notes.append(f"{len(left_out) - _LEFT_OUT_SHOWN} more MCP tools aren't offered")
        tools = tuple(tool for listing in listings for tool in listing.tools)
        return WorkspacePlugins(commands=commands, tools=tools, notes=tuple(notes))
