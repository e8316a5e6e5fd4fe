"""What goes over the wire between a host and a node: each message one record, closed, typed and versioned.

The host asks, the node answers under the number of the question; what a node says of itself has the number 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from remit.contract import Model, NodeRequest, NodeResponse
from remit.errors import NodeError
from remit.workspaces import KeepLimits, McpServer, Probe, RunningCall, WorkspaceSettings

__all__ = [
    "UNASKED",
    "Answer",
    "Ask",
    "CallsListed",
    "Drain",
    "Drained",
    "HostMessage",
    "KeeperStarted",
    "ListCalls",
    "Look",
    "Looked",
    "NodeMessage",
    "NodeSetup",
    "Ping",
    "Pong",
    "Ready",
    "Unable",
    "Unreadable",
    "decode_from_host",
    "decode_from_node",
    "encode",
]

UNASKED = 0
"""The number of what a node says without having been asked."""


class Unreadable(NodeError):
    """A record isn't a message of this protocol."""


class _Message(Model):
    version: Literal[1] = 1


# ---- from the host


class NodeSetup(_Message):
    """First of all: what the node serves. Over the socket, since arguments and variables show to others."""

    kind: Literal["setup"] = "setup"
    workspaces: tuple[WorkspaceSettings, ...] = ()
    data: Path
    """The data folder of the host; the node keeps to a folder of its own in it."""
    environment: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    """Of whoever works on this machine; each character stands for one byte (see `as_sent`)."""
    allow_unconfined: bool = False
    servers: dict[str, McpServer] = Field(default_factory=dict[str, McpServer], repr=False)
    keep: KeepLimits = Field(default_factory=KeepLimits)


class Ask(_Message):
    """One request."""

    kind: Literal["ask"] = "ask"
    request: NodeRequest


class Ping(_Message):
    """Whether the node still answers."""

    kind: Literal["ping"] = "ping"


class Look(_Message):
    """What this machine allows; starts the keeper."""

    kind: Literal["look"] = "look"


class ListCalls(_Message):
    """Which tool calls have processes now."""

    kind: Literal["list_calls"] = "list_calls"


class Drain(_Message):
    """Take no new run, let what goes on end, put everything away, and end."""

    kind: Literal["drain"] = "drain"
    within_ms: int = 0
    """What still goes on then is stopped."""


HostMessage = Annotated[NodeSetup | Ask | Ping | Look | ListCalls | Drain, Field(discriminator="kind")]

# ---- from the node


class Ready(_Message):
    """It takes requests."""

    kind: Literal["ready"] = "ready"
    pid: int


class Answer(_Message):
    """What came of a request."""

    kind: Literal["answer"] = "answer"
    response: NodeResponse


class Pong(_Message):
    """It does."""

    kind: Literal["pong"] = "pong"


class Looked(_Message):
    """What this machine allows."""

    kind: Literal["looked"] = "looked"
    keeper_pid: int
    probe: Probe


class CallsListed(_Message):
    """The tool calls that have processes now."""

    kind: Literal["calls_listed"] = "calls_listed"
    calls: tuple[RunningCall, ...]


class KeeperStarted(_Message):
    """Unasked: the process that every process of a run hangs on. When it is gone, they are."""

    kind: Literal["keeper_started"] = "keeper_started"
    pid: int


class Drained(_Message):
    """Everything has ended and is put away; the process ends next."""

    kind: Literal["drained"] = "drained"


class Unable(_Message):
    """What was asked for can't be had, or the record couldn't be read."""

    kind: Literal["unable"] = "unable"
    reason: Literal["unavailable", "lost", "storage_full", "refused", "too_large"] = "unavailable"
    message: str


NodeMessage = Annotated[
    Ready | Answer | Pong | Looked | CallsListed | KeeperStarted | Drained | Unable,
    Field(discriminator="kind"),
]

_FROM_HOST: TypeAdapter[HostMessage] = TypeAdapter(HostMessage)
_FROM_NODE: TypeAdapter[NodeMessage] = TypeAdapter(NodeMessage)
_Any = TypeVar("_Any")


def encode(message: Model) -> bytes:
    """A message as a record.

    Raises:
        Unreadable: It holds text that isn't Unicode.
    """
    try:
        return message.__pydantic_serializer__.to_json(message, by_alias=True)
    except ValueError:  # half of a surrogate pair: no bytes stand for it
        raise Unreadable("it holds text that can't be sent", reason="refused") from None


def decode_from_host(payload: bytes) -> HostMessage:
    """A record of the host.

    Raises:
        Unreadable: It is none.
    """
    return _decode(_FROM_HOST, payload)


def decode_from_node(payload: bytes) -> NodeMessage:
    """A record of the node.

    Raises:
        Unreadable: It is none.
    """
    return _decode(_FROM_NODE, payload)


def _decode(adapter: TypeAdapter[_Any], payload: bytes) -> _Any:
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        # Where it is wrong, never with what: a message may hold anything.
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:8])[:200]
        raise Unreadable(f"a message can't be read ({where or 'the whole'}): {first['type']}") from None
