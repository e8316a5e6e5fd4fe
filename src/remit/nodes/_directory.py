"""Which node serves which workspace, of those that have a link now.

A run is routed by its workspace's ref to a node's id. An alias is for people; neither it nor a shared token
says which node is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remit.errors import MisuseError, NodeError
from remit.nodes._ports import NodeLink


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedNode:
    """A node with a live link."""

    link: NodeLink
    workspaces: frozenset[str]
    """The refs that it serves."""
    alias: str | None = None
    """What people call it; several nodes may share one."""


class NodeDirectory:
    """The connected nodes of one host, by id."""

    def __init__(self) -> None:
        self._nodes: dict[str, ConnectedNode] = {}

    def connect(self, link: NodeLink, workspaces: Iterable[str], *, alias: str | None = None) -> None:
        """A node's link is up.

        Raises:
            MisuseError: A node of this id is connected already, or another one serves one of the workspaces.
        """
        refs = frozenset(workspaces)
        if link.node_id in self._nodes:
            raise MisuseError(f"node {link.node_id} is connected already", node_id=link.node_id)
        for node in self._nodes.values():
            if both := sorted(refs & node.workspaces):
                raise MisuseError(f"workspace {both[0]} is served by node {node.link.node_id} already")
        self._nodes[link.node_id] = ConnectedNode(link=link, workspaces=refs, alias=alias)

    def disconnect(self, node_id: str) -> None:
        """A node's link is gone; one that wasn't there changes nothing."""
        self._nodes.pop(node_id, None)

    def find_link(self, workspace: str) -> NodeLink | None:
        """The link to the node that serves a workspace; None when no connected node does."""
        for node in self._nodes.values():
            if workspace in node.workspaces:
                return node.link
        return None

    def get_link(self, workspace: str) -> NodeLink:
        """`find_link`, for who can't do without.

        Raises:
            NodeError: No connected node serves it.
        """
        link = self.find_link(workspace)
        if link is not None:
            return link
        raise NodeError(f"no connected node serves workspace {workspace}", reason="unavailable")

    @property
    def nodes(self) -> tuple[ConnectedNode, ...]:
        """All that are connected, in order of connection."""
        return tuple(self._nodes.values())
