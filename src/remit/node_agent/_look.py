"""What a host may know of the node on its own machine, wherever it lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remit.node_agent._states import NodeState
from remit.workspaces import Probe, RunningCall

__all__ = ["LocalNode", "NodeLook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """What was found out about a node's machine."""

    pid: int
    """The process that the node lives in."""
    keeper_pid: int
    """The process that every process of a run hangs on."""
    probe: Probe


class LocalNode(Protocol):
    """The node of a host's own machine."""

    @property
    def pid(self) -> int | None:
        """The process that it lives in; None: there is none just now."""
        ...

    @property
    def state(self) -> NodeState:
        """Where it is."""
        ...

    async def look(self) -> NodeLook:
        """What this machine allows; starts the keeper.

        Raises:
            NodeError: The node can't say.
            SandboxUnavailable: This system can't hold checkouts.
        """
        ...

    async def running_calls(self) -> tuple[RunningCall, ...]:
        """The tool calls that have processes now; none while there is no node."""
        ...
