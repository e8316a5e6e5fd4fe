"""Where a node of this machine is.

starting ──answer──> ready ──end──> lost ──start──> starting
    ├────────────────end────────────^
    └──────(any)───────close──────> closed

starting  its process was begun, and hasn't said yet that it takes requests
ready     it answers
lost      its process has ended, and what ran in it with it; another one is begun after a pause
closed    its host has ended it. No way back
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from remit.errors import InternalError

__all__ = ["NODE_TRANSITIONS", "NodeState", "NodeTrigger", "next_node_state"]


class NodeState(StrEnum):
    """Where a node is."""

    STARTING = "starting"
    READY = "ready"
    LOST = "lost"
    CLOSED = "closed"


class NodeTrigger(StrEnum):
    """What moves a node on."""

    ANSWER = "answer"
    END = "end"
    START = "start"
    CLOSE = "close"


_S = NodeState
_T = NodeTrigger

NODE_TRANSITIONS: Final[dict[tuple[NodeState, NodeTrigger], NodeState]] = {
    (_S.STARTING, _T.ANSWER): _S.READY,
    (_S.STARTING, _T.END): _S.LOST,
    (_S.READY, _T.END): _S.LOST,
    (_S.LOST, _T.START): _S.STARTING,
    (_S.STARTING, _T.CLOSE): _S.CLOSED,
    (_S.READY, _T.CLOSE): _S.CLOSED,
    (_S.LOST, _T.CLOSE): _S.CLOSED,
    (_S.CLOSED, _T.CLOSE): _S.CLOSED,
    (_S.CLOSED, _T.ANSWER): _S.CLOSED,
    (_S.CLOSED, _T.END): _S.CLOSED,
}
"""(where it is, what happens) -> where it is then. What isn't here can't happen."""


def next_node_state(state: NodeState, trigger: NodeTrigger) -> NodeState:
    """The state after a trigger.

    Raises:
        InternalError: That can't happen in this state.
    """
    try:
        return NODE_TRANSITIONS[state, trigger]
    except KeyError:
        raise InternalError(f"a node that is {state} can't {trigger}") from None
