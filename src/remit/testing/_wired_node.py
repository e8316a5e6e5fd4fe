"""A node at the other end of a real socket pair, in the same process: everything but the process is there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from remit.nodes import AskingLink, InProcessLink, NodeHandler
from remit.nodes.wire import MAX_RECORD_BYTES, Answering, SocketLink, Wire

LinkKind = Literal["in_process", "socket"]


@asynccontextmanager
async def linked(handler: NodeHandler, kind: LinkKind) -> AsyncGenerator[AskingLink]:
    """A link of either kind to what answers."""
    if kind == "in_process":
        async with InProcessLink(handler) as link:
            yield link
    else:
        async with wired(handler) as link:
            yield link


@asynccontextmanager
async def wired(
    handler: NodeHandler, *, link: SocketLink | None = None, max_record_bytes: int = MAX_RECORD_BYTES
) -> AsyncGenerator[SocketLink]:
    """A link over a socket pair to what answers; at the end of the block the link is lost.

    Args:
        handler: What answers.
        link: One that had another node before; None: a new one.
        max_record_bytes: Of one record, in both directions.
    """
    ours, theirs = socket.socketpair()
    link = link or SocketLink(ready_within_s=30)
    async with (
        Wire(ours, max_record_bytes=max_record_bytes) as near,
        Wire(theirs, max_record_bytes=max_record_bytes) as far,
        Answering(far, handler) as answering,
        asyncio.TaskGroup() as group,
    ):
        carrying = group.create_task(link.carry(near), name="the host's end")
        group.create_task(answering.run(), name="the node's end")
        try:
            yield link
        finally:
            near.close()
            await asyncio.wait({carrying})
