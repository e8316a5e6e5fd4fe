"""Which node serves which workspace."""

from __future__ import annotations

import pytest

from remit.contract import ArtifactRequest, ArtifactStored, NodeRequest, NodeResponse
from remit.errors import MisuseError, NodeError
from remit.nodes import InProcessLink, NodeDirectory


class Node:
    """A node that only remembers what reached it."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def handle(self, request: NodeRequest) -> NodeResponse:
        assert isinstance(request, ArtifactRequest)
        self.runs.append(request.run_id)
        return ArtifactStored(run_id=request.run_id, name=request.name, sha256="0")


async def test_three_nodes_of_one_alias_are_told_apart() -> None:
    """S7: nodes that share an alias coexist, and a call goes to the one that serves the run's workspace."""
    nodes = {ref: Node() for ref in ("app", "site", "docs")}
    directory = NodeDirectory()
    links = {ref: InProcessLink(node, node_id=f"nd_{ref}") for ref, node in nodes.items()}
    for ref, link in links.items():
        directory.connect(link, [ref], alias="builder")
    assert [node.alias for node in directory.nodes] == ["builder"] * 3
    for ref in nodes:
        async with links[ref]:
            link = directory.get_link(ref)
            assert link.node_id == f"nd_{ref}"
            await link.artifact(ArtifactRequest(run_id=f"run_{ref}", name="plan", text="x"))
    assert {ref: node.runs for ref, node in nodes.items()} == {ref: [f"run_{ref}"] for ref in nodes}


def test_an_alias_is_no_address() -> None:
    """S6, S7: only a connected node's workspace is found; its alias is not, nor is a node that has gone."""
    directory = NodeDirectory()
    directory.connect(InProcessLink(Node(), node_id="nd_1"), ["app"], alias="builder")
    for unknown in ("builder", "nd_1", "site"):
        with pytest.raises(NodeError) as caught:
            directory.get_link(unknown)
        assert caught.value.reason == "unavailable"
    directory.disconnect("nd_1")
    directory.disconnect("nd_1")
    with pytest.raises(NodeError):
        directory.get_link("app")


def test_one_node_an_id_and_one_node_a_workspace() -> None:
    """A second node of the same id, or for the same workspace, is refused; the first one stays."""
    directory = NodeDirectory()
    first = InProcessLink(Node(), node_id="nd_1")
    directory.connect(first, ["app"])
    with pytest.raises(MisuseError):
        directory.connect(InProcessLink(Node(), node_id="nd_1"), ["site"])
    with pytest.raises(MisuseError):
        directory.connect(InProcessLink(Node(), node_id="nd_2"), ["app"])
    assert directory.get_link("app") is first
