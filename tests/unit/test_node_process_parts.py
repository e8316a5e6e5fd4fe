"""Where a node of this machine may be, what its process writes, and how it is told what it serves."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from pathlib import Path

import pytest

from remit.errors import InternalError
from remit.node_agent import NodeState, setup_of
from remit.node_agent._child import NodeChild
from remit.node_agent._setup import node_of
from remit.node_agent._states import NODE_TRANSITIONS, NodeTrigger, next_node_state
from remit.nodes.wire import NodeSetup, decode_from_host, encode
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import KeepLimits, McpServer, WorkspaceSettings


def test_every_state_and_trigger() -> None:
    """What the table doesn't hold can't happen, and a closed node stays closed."""
    for state, trigger in itertools.product(NodeState, NodeTrigger):
        if (state, trigger) in NODE_TRANSITIONS:
            assert next_node_state(state, trigger) is NODE_TRANSITIONS[state, trigger]
        else:
            with pytest.raises(InternalError):
                next_node_state(state, trigger)
    assert {to for (state, _), to in NODE_TRANSITIONS.items() if state is NodeState.CLOSED} == {
        NodeState.CLOSED
    }
    assert all((state, NodeTrigger.CLOSE) in NODE_TRANSITIONS for state in NodeState)


def test_what_a_node_is_told_arrives_as_it_was(tmp_path: Path) -> None:
    """Settings, servers, bounds and variables of any bytes are the same on the other side of the socket."""
    workspace = WorkspaceSettings.model_validate(
        {
            "ref": "app",
            "root": tmp_path,
            "mounts": ["/opt/tools:rw"],
            "network": ["example.org:443"],
            "commands": [{"id": "test", "executable": "true"}],
            "checks": ["test"],
            "secrets": [{"name": "TOKEN", "to": ["tools"]}],
        }
    )
    server = McpServer(command="notes", environment={"A": "b"})
    keep = KeepLimits(max_age_s=1.5, max_bytes=7)
    environment = {"PATH": "/bin", "ODD": os.fsdecode(b"\xff"), "WIDE": "ü\u2028"}
    setup = setup_of(
        {"app": workspace},
        data=tmp_path,
        environment=environment,
        allow_unconfined=True,
        servers={"notes": server},
        keep=keep,
    )
    arrived = decode_from_host(encode(setup))
    assert isinstance(arrived, NodeSetup)
    assert arrived == setup
    assert "ODD" not in repr(setup)
    node = node_of(arrived, clock=SystemClock(), ids=SystemIds())
    assert node._workspaces == (workspace,)
    assert dict(node._environment) == environment
    assert node._keep == keep
    assert node._servers == {"notes": server}
    assert node._allow_unconfined
    assert node._data == tmp_path / "node"


async def test_what_a_node_writes_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A line each with the node's pid: nothing that steers a terminal, and no line without an end."""
    caplog.set_level(logging.WARNING, logger="remit.node")
    child, stream = NodeChild(), asyncio.StreamReader()
    child.pid = 7
    stream.feed_data(b"WARNING one\n\n\x1b[31mred\nx\xff" + b"y" * 100_000 + b"\nthe last, without an end")
    stream.feed_eof()
    await child._tell(stream)
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == ["node 7: WARNING one", "node 7: \ufffd[31mred"]
    assert all(len(line) <= 8_200 for line in said)
    assert said[-1] == "node 7: the last, without an end"
    assert child.last_words == "the last, without an end"
