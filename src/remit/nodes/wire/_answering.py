"""The node's end of a wire: each question a task of its own, so that a blocked one holds up no other."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, assert_never

from remit.contract import Model, NodeRequest
from remit.errors import NodeError, RemitError
from remit.nodes._asking import answer_of, failure_of
from remit.nodes._ports import NodeHandler
from remit.nodes.wire._frames import Oversized, Record
from remit.nodes.wire._messages import (
    UNASKED,
    Answer,
    Ask,
    CallsListed,
    Drain,
    HostMessage,
    ListCalls,
    Look,
    Looked,
    NodeSetup,
    Ping,
    Pong,
    Ready,
    Unable,
    Unreadable,
    decode_from_host,
    encode,
)
from remit.nodes.wire._wire import RecordTooLarge, Wire

__all__ = ["Answering"]

_log = logging.getLogger(__name__)
_BEGINS: Final = frozenset({"prepare", "open"})
"""What a node that drains takes no more."""


async def _nothing_runs() -> CallsListed:
    return CallsListed(calls=())


async def _nothing_to_see() -> Looked:
    raise NodeError("this node can't be looked at", reason="unavailable")


class Answering:
    """Answers a host's questions over one wire, for the length of an `async with` block.

    At the end of the block what is still being answered is cancelled, and has ended.

    Args:
        wire: The open wire.
        handler: What answers.
        node_id: The node's.
        look: Finds out what the machine allows.
        list_calls: Finds the tool calls that have processes now.
    """

    def __init__(
        self,
        wire: Wire,
        handler: NodeHandler,
        *,
        node_id: str = "local",
        look: Callable[[], Awaitable[Looked]] = _nothing_to_see,
        list_calls: Callable[[], Awaitable[CallsListed]] = _nothing_runs,
    ) -> None:
        self._wire = wire
        self._handler = handler
        self._node_id = node_id
        self._look = look
        self._list_calls = list_calls
        self._group: asyncio.TaskGroup | None = None
        self._going_on: set[asyncio.Task[None]] = set()
        self._drain: asyncio.Future[int] | None = None
        self._is_draining = False

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._drain = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is not None:
            for task in self._going_on:
                task.cancel()
            await group.__aexit__(None, None, None)

    async def run(self, *, ready_for: int = UNASKED) -> int | None:
        """Answer until the link is lost, or the host has said that it wants an end and nothing goes on.

        Args:
            ready_for: The number of the question that `Ready` answers.

        Returns:
            The number of the host's `drain`, to be answered when all is put away; None: the link was lost.

        Raises:
            BrokenFrames: What comes can't be read.
        """
        assert self._group is not None, "it is used by `async with`"
        assert self._drain is not None
        self._say(ready_for, Ready(pid=os.getpid()))
        reading = self._group.create_task(_settled(self._read()), name="questions of the host")
        await asyncio.wait({reading, self._drain}, return_when=asyncio.FIRST_COMPLETED)
        if self._drain.done():
            reading.cancel()
            return self._drain.result()
        failure = reading.result()
        if failure is not None:
            raise failure
        return None

    def tell(self, message: Model) -> None:
        """Say something that wasn't asked."""
        self._say(UNASKED, message)

    async def _read(self) -> None:
        async for record in self._wire.records():
            self._take(record)

    def _take(self, record: Record | Oversized) -> None:
        if isinstance(record, Oversized):
            message = f"a question of {record.size_bytes} bytes is more than a link takes at once"
            return self._say(record.number, Unable(reason="too_large", message=message))
        try:
            asked = decode_from_host(record.payload)
        except Unreadable as error:
            _log.warning("node %s: %s", self._node_id, error.message)
            return self._say(record.number, Unable(reason="refused", message=error.message))
        return self._begin(record.number, asked)

    def _begin(self, number: int, asked: HostMessage) -> None:
        match asked:
            case Ask():
                request = asked.request
                self._start(self._answer(number, request), f"node {request.kind} {request.run_id}")
            case Ping():
                self._say(number, Pong())
            case Look():
                self._start(self._find_out(number, self._look), "node look")
            case ListCalls():
                self._start(self._find_out(number, self._list_calls), "node list_calls")
            case Drain():
                self._is_draining = True
                self._start(self._wait_for_an_end(number, asked.within_ms / 1000), "node drain")
            case NodeSetup():
                self._say(number, Unable(reason="refused", message="the node is set up already"))
            case _:
                assert_never(asked)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._group is None:
            work.close()
            return
        task = self._group.create_task(work, name=name)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def _answer(self, number: int, request: NodeRequest) -> None:
        if self._is_draining and request.kind in _BEGINS:
            response = failure_of(request, "the node takes no new runs: its host ends")
        else:
            response = await answer_of(self._handler, request, node_id=self._node_id)
        self._say(number, Answer(response=response))

    async def _find_out(self, number: int, find: Callable[[], Awaitable[Looked | CallsListed]]) -> None:
        try:
            self._say(number, await find())
        except RemitError as error:
            self._say(number, Unable(message=error.message))

    async def _wait_for_an_end(self, number: int, within_s: float) -> None:
        """Let what goes on end in time; the rest is cancelled at the end of the block."""
        mine = asyncio.current_task()
        others = {task for task in self._going_on if task is not mine}
        if others:
            await asyncio.wait(others, timeout=within_s)
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(number)

    def _say(self, number: int, message: Model) -> None:
        """Answer; what can't be sent is one call's fault."""
        try:
            self._wire.send(number, encode(message))
        except RecordTooLarge as error:
            self._say(number, Unable(reason="too_large", message=f"the answer: {error.message}"))
        except Unreadable as error:
            self._say(number, Unable(reason="unavailable", message=f"the answer: {error.message}"))
        except NodeError:
            return  # the host is gone, and its end of the link tells so


async def _settled(work: Coroutine[Any, Any, None]) -> Exception | None:
    """The error is a value here: a task group would end with it."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - raised by who waits
        return error
    return None
