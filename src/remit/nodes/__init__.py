"""On which machine: links to nodes, and what is said over them. `wire` holds links over a socket."""

from remit.nodes._asking import AskingLink
from remit.nodes._directory import ConnectedNode, NodeDirectory
from remit.nodes._in_process import InProcessLink
from remit.nodes._ports import NodeHandler, NodeLink
from remit.nodes._waiters import Waiters, WaitKey

__all__ = [
    "AskingLink",
    "ConnectedNode",
    "InProcessLink",
    "NodeDirectory",
    "NodeHandler",
    "NodeLink",
    "WaitKey",
    "Waiters",
]
