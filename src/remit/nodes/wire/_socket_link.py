"""A link over a socket: the host's end, over as many lives of the node as there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar, assert_never

from remit.contract import NodeFailure, NodeRequest
from remit.errors import NodeError
from remit.nodes._asking import AskingLink
from remit.nodes._waiters import WaitKey
from remit.nodes.wire._frames import Oversized, Record
from remit.nodes.wire._messages import (
    Answer,
    Ask,
    CallsListed,
    Drain,
    Drained,
    KeeperStarted,
    ListCalls,
    Look,
    Looked,
    NodeMessage,
    NodeSetup,
    Ping,
    Pong,
    Ready,
    Unable,
    Unreadable,
    decode_from_node,
    encode,
)
from remit.nodes.wire._wire import Wire

__all__ = ["SocketLink"]

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_ASKED_AGAIN: Final = frozenset({"prepare", "artifact", "cancel", "snapshot", "deliver", "cleanup"})
"""What the next node answers as truly as the last one would have: it reads what that one left, or begins
anew. The rest hangs on a checkout that was open, and is lost with it."""
_MOST_TIMES: Final = 3
_LOST: Final = "the node's process has ended, and with it what ran there"


def _ignore(_: NodeMessage) -> None:
    """Nobody wants to know."""


class SocketLink(AskingLink):
    """The link to a node in a process of its own.

    It outlives the process: while there is none a question waits for the next one, for `ready_within_s`. What
    was asked of one that died is asked again where that is safe, and is `lost` where it isn't.

    Args:
        node_id: The node's.
        ready_within_s: How long a question waits for a node to be there.
        on_unasked: Told of what the node says of itself.
    """

    def __init__(
        self,
        *,
        node_id: str = "local",
        ready_within_s: float = 10.0,
        on_unasked: Callable[[NodeMessage], object] = _ignore,
    ) -> None:
        super().__init__(node_id=node_id)
        self._ready_within_s = ready_within_s
        self._on_unasked = on_unasked
        self._wire: Wire | None = None
        self._calls: dict[int, WaitKey] = {}
        self._controls: dict[int, asyncio.Future[NodeMessage]] = {}
        self._up = asyncio.Event()
        self._closed = False
        self._losses = 0
        self.heard = 0
        """Records that came, so that silence can be told."""

    @property
    def is_up(self) -> bool:
        """Whether a node answers at the other end."""
        return self._up.is_set() and not self._closed

    def close(self) -> None:
        """No node comes any more: whoever waits for one is told so."""
        self._closed = True
        self._up.set()

    def use(self, wire: Wire) -> None:
        """Send over this wire from now on; `carry` follows."""
        self._wire = wire

    async def carry(self, wire: Wire) -> None:
        """Take what comes until the wire ends; then who waits for an answer is told that it is lost.

        Raises:
            BrokenFrames: What comes can't be read.
        """
        self.use(wire)
        try:
            async for record in wire.records():
                self._take(record)
        finally:
            self._lose()

    def _lose(self) -> None:
        self._wire = None
        self._losses += 1
        if not self._closed:
            self._up.clear()
        self._calls.clear()
        controls, self._controls = self._controls, {}
        for waiting in controls.values():
            if not waiting.done():
                waiting.set_result(Unable(reason="lost", message=_LOST))
        self.waiters.fail_all(NodeFailure(run_id="", reason="lost", message=_LOST))

    # ---- questions about runs

    async def _ask(self, request: NodeRequest, shape: type[_Answer]) -> _Answer:
        for _ in range(_MOST_TIMES - 1):
            await self._until_up()
            losses = self._losses
            try:
                return await super()._ask(request, shape)
            except NodeError:
                if losses == self._losses or request.kind not in _ASKED_AGAIN:
                    raise
        await self._until_up()
        return await super()._ask(request, shape)

    async def _until_up(self) -> None:
        if not self._up.is_set():
            try:
                async with asyncio.timeout(self._ready_within_s):
                    await self._up.wait()
            except TimeoutError:
                raise NodeError("there is no node: its process didn't come up again", reason="lost") from None
        if self._closed:
            raise NodeError("the link to the node is closed", reason="lost")

    def _send(self, number: int, key: WaitKey, request: NodeRequest) -> None:
        if self._wire is None:
            raise NodeError(_LOST, reason="lost")
        self._wire.send(number, encode(Ask(request=request)))
        self._calls[number] = key

    # ---- questions about the node itself

    async def control(self, message: NodeSetup | Ping | Look | ListCalls | Drain) -> NodeMessage:
        """Ask the node itself; `Unable` where it can't, or has gone.

        Raises:
            NodeError: There is no node, reason `lost`.
        """
        if self._wire is None:
            raise NodeError(_LOST, reason="lost")
        number = next(self._numbers)
        waiting: asyncio.Future[NodeMessage] = asyncio.get_running_loop().create_future()
        self._controls[number] = waiting
        try:
            self._wire.send(number, encode(message))
            return await waiting
        finally:
            self._controls.pop(number, None)

    # ---- answers

    def _take(self, record: Record | Oversized) -> None:
        self.heard += 1
        if isinstance(record, Oversized):
            message = f"the node's answer has {record.size_bytes} bytes, more than a link takes at once"
            return self._refuse(record.number, Unable(reason="too_large", message=message))
        try:
            said = decode_from_node(record.payload)
        except Unreadable as error:
            _log.warning("node %s: %s", self.node_id, error.message)
            return self._refuse(record.number, Unable(message=f"the node's answer: {error.message}"))
        return self._hand_out(record.number, said)

    def _hand_out(self, number: int, said: NodeMessage) -> None:
        match said:
            case Answer():
                key = self._calls.pop(number, None)
                if key is None:
                    self.waiters.dropped += 1
                else:
                    self.waiters.deliver(key, said.response)
            case Unable():
                self._refuse(number, said)
            case KeeperStarted():
                self._on_unasked(said)
            case Ready():
                self._up.set()
                self._settle(number, said)
            case Pong() | Looked() | CallsListed() | Drained():
                self._settle(number, said)
            case _:
                assert_never(said)

    def _settle(self, number: int, said: NodeMessage) -> None:
        waiting = self._controls.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(said)

    def _refuse(self, number: int, said: Unable) -> None:
        """An answer that there isn't: one call's fault, of that call alone."""
        key = self._calls.pop(number, None)
        if key is None:
            return self._settle(number, said)
        failure = NodeFailure(run_id=key.run_id, reason=said.reason, message=said.message)
        self.waiters.deliver(key, failure)
        return None
