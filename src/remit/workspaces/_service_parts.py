"""What the answers to a host's requests share: the node's stores, its keeper, and the runs it works for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from remit.contract import NodeRequest
from remit.errors import NodeError
from remit.primitives import Clock, Ids
from remit.workspaces._branching import Branches
from remit.workspaces._collect import IgnoreMemory
from remit.workspaces._delivery import Deliveries
from remit.workspaces._keeper import Keeper
from remit.workspaces._mcp_settings import McpServer
from remit.workspaces._owner import NodeOwner
from remit.workspaces._patch import PatchFolders
from remit.workspaces._pinning import Bases
from remit.workspaces._plugins import Plugins
from remit.workspaces._preparing import Preparer
from remit.workspaces._receipts import Receipts
from remit.workspaces._service_runs import NodeRun
from remit.workspaces._settings import WorkspaceSettings

__all__ = ["NodeParts"]


class NodeParts:
    """The parts of one node. `NodeService` owns them; each kind of request is answered by its own file.

    `opened_count` and `cleaned_up_count` only grow, and are equal when no run holds a checkout.
    """

    def __init__(
        self,
        workspaces: Sequence[WorkspaceSettings],
        *,
        data: Path,
        owner: NodeOwner,
        receipts: Receipts,
        clock: Clock,
        ids: Ids,
        environment: Mapping[str, str],
        allow_unconfined: bool,
        servers: Mapping[str, McpServer],
        on_keeper: Callable[[int], object] | None = None,
    ) -> None:
        self._on_keeper = on_keeper
        self.workspaces = {settings.ref: settings for settings in workspaces}
        self.data = data
        self.owner = owner
        self.receipts = receipts
        self.clock = clock
        self.environment = environment
        self.allow_unconfined = allow_unconfined
        self.bases = Bases(data, environment=environment)
        self.deliveries = Deliveries(data)
        self.plugins = Plugins(servers, clock=clock, environment=environment)
        self.preparer = Preparer(
            data,
            bases=self.bases,
            keeper=self.get_keeper,
            clock=clock,
            ids=ids,
            environment=environment,
            allow_unconfined=allow_unconfined,
            owner=owner.id,
            programs=self.plugins.programs,
        )
        self.scratch = data / "scratch" / owner.id
        self.patch_folders = PatchFolders(self.scratch)
        self.runs: dict[str, NodeRun] = {}
        self.opened_count = 0
        self.cleaned_up_count = 0
        self._keeper: Keeper | None = None
        self._keeper_lock = asyncio.Lock()

    async def get_branches(self) -> Branches:
        """Deliveries to branches, by what the user's settings say now.

        Raises:
            NodeError: There is no git.
        """
        return Branches(self.data, git=self.bases.git, user=await self.bases.user_settings())

    async def get_keeper(self) -> Keeper:
        """The node's keeper, started when it is first needed, and anew when it has died.

        Raises:
            KeeperLost: It doesn't come up.
        """
        async with self._keeper_lock:
            if self._keeper is not None and not self._keeper.alive:
                dead, self._keeper = self._keeper, None
                await dead.aclose()
            if self._keeper is None:
                self._keeper = await Keeper.start(data=self.data)
                if self._on_keeper is not None:
                    self._on_keeper(self._keeper.pid)
            return self._keeper

    async def close_keeper(self) -> None:
        """End the keeper, and with it all that it holds."""
        if self._keeper is not None:
            await self._keeper.aclose()
            self._keeper = None

    async def enter(self, request: NodeRequest) -> NodeRun:
        """The run that a request is about, once its generation is known to be the newest.

        Raises:
            StaleGeneration: A newer holder of the run was here.
        """
        now_s = self.clock.monotonic()
        run = self.runs.get(request.run_id)
        if run is None or run.generation != request.generation:
            await self.receipts.fence(request.run_id, request.generation)
            for idle in [other.run_id for other in self.runs.values() if other.is_idle(now_s)]:
                del self.runs[idle]
            made = NodeRun(request.run_id, request.generation, now_s, ignored=IgnoreMemory(self.scratch))
            run = self.runs.setdefault(request.run_id, made)
            run.generation = max(run.generation, request.generation)
        run.seen_s = now_s
        return run

    def get_settings(self, ref: str) -> WorkspaceSettings:
        """What is set for a workspace.

        Raises:
            NodeError: It isn't this node's.
        """
        settings = self.workspaces.get(ref)
        if settings is None:
            raise NodeError(f"this node has no workspace {ref!r}", reason="unavailable")
        return settings

    def get_parent(self, parent_id: str) -> NodeRun:
        """The run that a child's run was delegated by.

        Raises:
            NodeError: It isn't known here.
        """
        parent = self.runs.get(parent_id)
        if parent is None:
            raise NodeError(f"run {parent_id} isn't known on this node", reason="lost")
        return parent
