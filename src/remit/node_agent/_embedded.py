"""The node in the process of whoever opens it: the host's own, or one that serves nothing else.

Its keeper and all commands are processes of their own, which die with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from remit.contract import NodeRequest, NodeResponse
from remit.errors import MisuseError
from remit.node_agent import node_folder
from remit.node_agent._look import NodeLook
from remit.node_agent._states import NodeState
from remit.primitives import Clock, Ids
from remit.workspaces import KeepLimits, McpServer, NodeService, RunningCall, WorkspaceSettings

__all__ = ["EmbeddedNode"]

_SWEEP_S = 3_600.0
_log = logging.getLogger(__name__)


class EmbeddedNode:
    """The node inside a process.

    Args:
        workspaces: What it serves, by ref.
        data: The data folder; the node keeps to a folder of its own in it.
        clock: Where time comes from.
        ids: Where ids come from.
        environment: Of whoever works on this machine: where toolchains and allow-listed variables come from.
        allow_unconfined: Whether sandbox level `none` was allowed by hand.
        servers: The MCP servers that workspaces may name; None: there are none.
        keep: How much is kept of ended runs, looked at again every hour; None: the default.
        on_keeper: Told the pid of each keeper that is started.
    """

    def __init__(
        self,
        workspaces: Mapping[str, WorkspaceSettings],
        *,
        data: Path,
        clock: Clock,
        ids: Ids,
        environment: Mapping[str, str],
        allow_unconfined: bool = False,
        servers: Mapping[str, McpServer] | None = None,
        keep: KeepLimits | None = None,
        on_keeper: Callable[[int], object] | None = None,
    ) -> None:
        self._workspaces = tuple(workspaces.values())
        self._data = node_folder(data)
        self._clock = clock
        self._ids = ids
        self._environment = environment
        self._allow_unconfined = allow_unconfined
        self._servers = servers
        self._keep = keep
        self._on_keeper = on_keeper
        self._stack = AsyncExitStack()
        self._service: NodeService | None = None

    async def __aenter__(self) -> Self:
        self._service = await NodeService.start(
            self._workspaces,
            data=self._data.resolve(),
            clock=self._clock,
            ids=self._ids,
            environment=self._environment,
            allow_unconfined=self._allow_unconfined,
            servers=self._servers,
            keep=self._keep,
            on_keeper=self._on_keeper,
        )
        self._stack.push_async_callback(self._service.aclose)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(group.create_task(self._sweep_hourly(self._service)).cancel)
        return self

    async def _sweep_hourly(self, service: NodeService) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            try:
                await service.sweep()
            except OSError as error:
                _log.warning("what ended runs left couldn't be collected: %s", error.strerror or error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service = None
        await self._stack.aclose()

    @property
    def service(self) -> NodeService:
        """What answers the requests.

        Raises:
            MisuseError: The node isn't open.
        """
        if self._service is None:
            raise MisuseError("the node isn't open: use `async with EmbeddedNode(...)`")
        return self._service

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    @property
    def state(self) -> NodeState:
        """Where it is."""
        return NodeState.STARTING if self._service is None else NodeState.READY

    async def look(self) -> NodeLook:
        """What this machine allows; starts the keeper.

        Raises:
            KeeperLost: It doesn't come up.
            SandboxUnavailable: This system can't hold checkouts.
        """
        keeper = await self.service.get_keeper()
        return NodeLook(pid=os.getpid(), keeper_pid=keeper.pid, probe=keeper.probe)

    async def running_calls(self) -> tuple[RunningCall, ...]:
        """The tool calls that have processes now."""
        return () if self._service is None else await self._service.running_calls()

    async def handle(self, request: NodeRequest) -> NodeResponse:
        """Answer one request of the host."""
        return await self.service.handle(request)
