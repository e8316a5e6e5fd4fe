"""What a cancel reaches: one handle per way of stopping a piece of work, as a sealed union."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never


class CancelToken:
    """A flag that is tripped once and can be waited for. Belongs to one loop."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def trip(self) -> None:
        """Set it; a second time changes nothing."""
        self._event.set()

    @property
    def tripped(self) -> bool:
        """Whether it has been tripped."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return once it is tripped. Cancellation: the wait just ends."""
        await self._event.wait()


@dataclass(frozen=True, slots=True)
class ScopeHandle:
    """A run's, stage's or workflow node's own task scope."""

    cancel: Callable[[], object]
    """Cancels the scope's tasks; only asks, never waits."""
    kind: Literal["scope"] = "scope"


@dataclass(frozen=True, slots=True)
class StreamHandle:
    """An open stream of a provider's answer."""

    close: Callable[[], Awaitable[object]]
    """Closes the stream and its connection."""
    kind: Literal["stream"] = "stream"


@dataclass(frozen=True, slots=True)
class NodeCallHandle:
    """A call that a node carries out."""

    cancel: Callable[[], Awaitable[object]]
    """Sends the cancel over the link; returns when the node has answered."""
    kind: Literal["node_call"] = "node_call"


@dataclass(frozen=True, slots=True)
class InvocationHandle:
    """A tool call in another process, such as an MCP server."""

    token: CancelToken
    kind: Literal["invocation"] = "invocation"


@dataclass(frozen=True, slots=True)
class ServiceCallHandle:
    """A call of a typed service, which looks at its token before it begins."""

    token: CancelToken
    kind: Literal["service_call"] = "service_call"


@dataclass(frozen=True, slots=True)
class DeliveryHandle:
    """A webhook that is being delivered, or waits to be tried again."""

    abort: Callable[[], object]
    """Gives the delivery up; only asks, never waits."""
    kind: Literal["delivery"] = "delivery"


@dataclass(frozen=True, slots=True)
class DurableFlagHandle:
    """Work whose owner reads a stored flag: a detached loop, or a workflow on another host."""

    request: Callable[[], Awaitable[object]]
    """Stores the cancel request; may fail, with a text."""
    kind: Literal["durable_flag"] = "durable_flag"


@dataclass(frozen=True, slots=True)
class ProbeHandle:
    """For tests and drills: awaits what it is given."""

    fire: Callable[[], Awaitable[object]]
    kind: Literal["probe"] = "probe"


Handle: TypeAlias = (
    ScopeHandle
    | StreamHandle
    | NodeCallHandle
    | InvocationHandle
    | ServiceCallHandle
    | DeliveryHandle
    | DurableFlagHandle
    | ProbeHandle
)
"""Every way of stopping a piece of work. All of them can be cancelled."""


def is_cancellable(handle: Handle) -> bool:
    """Whether a cancel can reach the work behind this handle: true of every kind there is."""
    match handle:
        case (
            ScopeHandle()
            | StreamHandle()
            | NodeCallHandle()
            | InvocationHandle()
            | ServiceCallHandle()
            | DeliveryHandle()
            | DurableFlagHandle()
            | ProbeHandle()
        ):
            return True
        case _:
            assert_never(handle)


async def fire_handle(handle: Handle) -> None:
    """Ask the work behind a handle to stop, and wait until the asking is done.

    Cancellation: the asking may have been done or not; asking again is harmless.
    """
    match handle:
        case ScopeHandle():
            handle.cancel()
        case StreamHandle():
            await handle.close()
        case NodeCallHandle():
            await handle.cancel()
        case InvocationHandle() | ServiceCallHandle():
            handle.token.trip()
        case DeliveryHandle():
            handle.abort()
        case DurableFlagHandle():
            await handle.request()
        case ProbeHandle():
            await handle.fire()
        case _:
            assert_never(handle)
