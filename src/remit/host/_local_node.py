"""The node of a host's own machine: in its process, or in one beside it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remit.config import Config
from remit.node_agent import EmbeddedNode, LocalNode
from remit.nodes import AskingLink, InProcessLink
from remit.primitives import Clock, Ids

if TYPE_CHECKING:
    from remit.node_agent import NodeProcess

__all__ = ["OpenNode", "open_node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNode:
    """A node, and the link to it."""

    node: EmbeddedNode | NodeProcess
    link: AskingLink

    @property
    def seen(self) -> LocalNode:
        """What may be known of it, wherever it lives."""
        return self.node

    async def wait_ready(self) -> None:
        """Return once it takes requests.

        Raises:
            NodeError: Its process doesn't start; the message says why.
        """
        if not isinstance(self.node, EmbeddedNode):
            await self.node.wait_ready()


async def open_node(
    stack: AsyncExitStack, config: Config, *, data: Path, clock: Clock, ids: Ids, own_process: bool
) -> OpenNode:
    """Open the node, and the link to it; the stack closes both. One in its own process isn't awaited yet.

    Raises:
        StorageError: Its store can't be opened.
    """
    if own_process:
        # Only who has such a node needs the wire and its messages.
        from remit.node_agent import NodeProcess, setup_of  # noqa: PLC0415

        setup = setup_of(
            config.workspaces,
            data=data,
            environment=config.node_environment(),
            allow_unconfined=config.allow_unconfined,
            servers=config.servers,
            keep=config.keep,
        )
        process = await stack.enter_async_context(NodeProcess(setup, clock=clock))
        return OpenNode(node=process, link=process.link)
    embedded = await stack.enter_async_context(
        EmbeddedNode(
            config.workspaces,
            data=data,
            clock=clock,
            ids=ids,
            environment=config.environment,
            allow_unconfined=config.allow_unconfined,
            servers=config.servers,
            keep=config.keep,
        )
    )
    return OpenNode(node=embedded, link=await stack.enter_async_context(InProcessLink(embedded)))
