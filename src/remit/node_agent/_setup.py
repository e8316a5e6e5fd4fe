"""How a host tells the node's process what it serves, and how that process opens it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from remit.node_agent._embedded import EmbeddedNode
from remit.nodes.wire import NodeSetup
from remit.primitives import Clock, Ids
from remit.workspaces import KeepLimits, McpServer, WorkspaceSettings

__all__ = ["node_of", "setup_of"]


def setup_of(
    workspaces: Mapping[str, WorkspaceSettings],
    *,
    data: Path,
    environment: Mapping[str, str],
    allow_unconfined: bool = False,
    servers: Mapping[str, McpServer] | None = None,
    keep: KeepLimits | None = None,
) -> NodeSetup:
    """What `EmbeddedNode` would be made of, as it is sent."""
    return NodeSetup(
        workspaces=tuple(workspaces.values()),
        data=data.resolve(),
        environment={_as_sent(name): _as_sent(value) for name, value in environment.items()},
        allow_unconfined=allow_unconfined,
        servers=dict(servers or {}),
        keep=keep or KeepLimits(),
    )


def node_of(
    setup: NodeSetup, *, clock: Clock, ids: Ids, on_keeper: Callable[[int], object] | None = None
) -> EmbeddedNode:
    """The node that was told of. Not open yet."""
    return EmbeddedNode(
        {settings.ref: settings for settings in setup.workspaces},
        data=setup.data,
        clock=clock,
        ids=ids,
        environment={_as_it_was(name): _as_it_was(value) for name, value in setup.environment.items()},
        allow_unconfined=setup.allow_unconfined,
        servers=setup.servers,
        keep=setup.keep,
        on_keeper=on_keeper,
    )


def _as_sent(text: str) -> str:
    """Variables may hold any bytes: each one becomes one character."""
    return os.fsencode(text).decode("latin-1")


def _as_it_was(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
