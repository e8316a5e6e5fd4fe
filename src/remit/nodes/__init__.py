"""On which machine: links to nodes, and what is said over them."""

from remit.nodes._directory import ConnectedNode, NodeDirectory
from remit.nodes._link import InProcessLink, NodeHandler, NodeLink
from remit.nodes._waiters import Waiters, WaitKey

__all__ = ["ConnectedNode", "InProcessLink", "NodeDirectory", "NodeHandler", "NodeLink", "WaitKey", "Waiters"]
