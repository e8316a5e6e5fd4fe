"""The node: one of the two places where adapters are chosen. It owns workspaces and runs tools.

`EmbeddedNode` lives in the process that opens it, `NodeProcess` in one of its own. Names are loaded when they
are first used (PEP 562): the node's own process needs nothing of the host's side.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.node_agent._embedded import EmbeddedNode
    from remit.node_agent._look import LocalNode, NodeLook
    from remit.node_agent._process import NodeProcess, NodeTimes
    from remit.node_agent._setup import setup_of
    from remit.node_agent._spare import forget_spare
    from remit.node_agent._states import NodeState

_HOMES = {
    "EmbeddedNode": "_embedded",
    "LocalNode": "_look",
    "NodeLook": "_look",
    "NodeProcess": "_process",
    "NodeState": "_states",
    "NodeTimes": "_process",
    "forget_spare": "_spare",
    "setup_of": "_setup",
}

__all__ = [
    "EmbeddedNode",
    "LocalNode",
    "NodeLook",
    "NodeProcess",
    "NodeState",
    "NodeTimes",
    "forget_spare",
    "fork_first_node",
    "node_folder",
    "setup_of",
]


def node_folder(data: Path) -> Path:
    """Where the node of this machine keeps its own things, in the user's data folder."""
    return data / "node"


def fork_first_node() -> None:
    """Fork the process of the node that this process's host will have first; see `_spare`.

    For a program that is a host and nothing else, before it is one.
    """
    # Loaded now, so that both processes share them.
    from remit.node_agent._child import is_kept  # noqa: PLC0415 - see above
    from remit.node_agent._served import main  # noqa: PLC0415 - see above
    from remit.node_agent._spare import fork_spare  # noqa: PLC0415 - see above

    fork_spare(main, keep=is_kept)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
