"""Checkouts of a base that are no run's: for setup commands, checks on the base, tool servers' listings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from remit.primitives import Ids
from remit.workspaces._checkout import Checkout
from remit.workspaces._keeper import Keeper
from remit.workspaces._owner import note_owner
from remit.workspaces._prepared import PreparedWorkspace, checkout_request
from remit.workspaces._taking import take_back, take_in_thread
from remit.workspaces.keeper._storage import remove_what_can_be

__all__ = ["Scratches"]


class Scratches:
    """Opens scratch checkouts of one node.

    Args:
        data: The node's data folder.
        keeper: Gives the node's keeper, started when it is first needed.
        ids: Names them.
        environment: Of whoever works on this machine.
        allow_unconfined: Whether `sandbox = "none"` was allowed.
        owner: The node's process, by the name of its lock.
    """

    def __init__(
        self,
        data: Path,
        *,
        keeper: Callable[[], Awaitable[Keeper]],
        ids: Ids,
        environment: Mapping[str, str],
        allow_unconfined: bool,
        owner: str,
    ) -> None:
        self._data = data
        self._keeper = keeper
        self._ids = ids
        self._environment = environment
        self._allow_unconfined = allow_unconfined
        self._owner = owner

    def opened(self, workspace: PreparedWorkspace) -> AbstractAsyncContextManager[Checkout]:
        """A checkout of the base for the length of a block."""
        return _Opened(self, workspace)

    async def open(self, workspace: PreparedWorkspace, *, keep_home: bool = False) -> Checkout:
        """A checkout of the base; with `keep_home` its home folder stays when it is kept.

        Cancellation: what was begun is removed.
        """
        keeper = await self._keeper()
        if workspace.isolation == "in_place":
            workspace = replace(workspace, isolation="copy" if keeper.probe.overlay_problem else "overlay")
        storage = self._data / "checkouts" / self._ids.new("scratch")
        try:
            return await self._open(keeper, workspace, storage, keep_home=keep_home)
        except BaseException:
            await take_back(storage)
            raise

    async def _open(
        self, keeper: Keeper, workspace: PreparedWorkspace, storage: Path, *, keep_home: bool
    ) -> Checkout:
        # Not to be cut: its thread would make the folder after it was taken back.
        await take_in_thread(partial(note_owner, storage, self._owner), lambda _: None)
        request = checkout_request(
            workspace,
            checkout_id=storage.name,
            generation=1,
            data=self._data,
            environment=self._environment,
            allow_unconfined=self._allow_unconfined,
        )
        return await keeper.open(replace(request, keep_home=keep_home))


class _Opened(AbstractAsyncContextManager[Checkout]):
    """A scratch checkout for the length of a block."""

    def __init__(self, scratches: Scratches, workspace: PreparedWorkspace) -> None:
        self._scratches = scratches
        self._workspace = workspace
        self._checkout: Checkout | None = None

    async def __aenter__(self) -> Checkout:
        self._checkout = await self._scratches.open(self._workspace)
        return self._checkout

    async def __aexit__(self, *details: object) -> None:
        if self._checkout is not None:
            await self._checkout.close(keep=False)
            await asyncio.to_thread(remove_what_can_be, self._checkout.storage)
