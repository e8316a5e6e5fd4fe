"""The node's end of the socket to one keeper: requests out, answers in, many in flight, no tasks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from remit.primitives import once_more
from remit.workspaces._failures import KeeperLost, WorkspaceOperationError
from remit.workspaces.keeper._protocol import Decoder, Frame, FrameTooLarge, encode

__all__ = ["KeeperLink"]

OPENING = 0


class KeeperLink(asyncio.Protocol):
    """Joins answers to the requests that they belong to, by number."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._viewers: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._next_number = OPENING
        self._lost: KeeperLost | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def connect(cls, link: socket.socket) -> KeeperLink:
        """Takes over a connected stream socket."""
        _, protocol = await asyncio.get_running_loop().create_connection(cls, sock=link)
        return protocol

    # ---- requests

    def _expect(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """A number, and the answer that will come for it."""
        number = self._next_number
        self._next_number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            answer.set_exception(self._lost)
        else:
            self._waiting[number] = answer
        return number, answer

    def send(
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_part: Callable[[dict[str, Any]], None] | None = None,
    ) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Sends a request at once; the future is its answer.

        Raises:
            WorkspaceOperationError: the request doesn't fit into a frame; nothing was sent.
        """
        return self._send({"method": method, "params": params}, on_part=on_part)

    def send_order(self, order: dict[str, Any]) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Sends what a new process shall be; its answer is its first word."""
        return self._send(order, on_part=None)

    def _send(
        self, body: dict[str, Any], *, on_part: Callable[[dict[str, Any]], None] | None
    ) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        number, answer = self._expect()
        try:
            data = encode(number, body)
        except FrameTooLarge as error:
            self._waiting.pop(number, None)
            raise WorkspaceOperationError(f"too large to send: {error}", status="too_large") from None
        if on_part is not None:
            self._viewers[number] = on_part
        if self._transport is not None and self._lost is None:
            self._transport.write(data)
        return number, answer

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            WorkspaceOperationError: the keeper says no.
            KeeperLost: it is gone.

        Cancellation: the request goes on; only its answer is dropped.
        """
        number, answer = self.send(method, params)
        try:
            return await answer
        finally:
            self.forget(number)

    def forget(self, number: int) -> None:
        """An answer that still comes for this request is dropped."""
        self._waiting.pop(number, None)
        self._viewers.pop(number, None)

    def close(self) -> None:
        """Closes our end; the keeper and all that it runs end."""
        if self._transport is not None:
            self._transport.close()

    async def end(self, *, within_s: float) -> None:
        """Says that nothing more comes, and closes once the keeper has gone or the time is over.

        Cancellation: it waits all the same, and raises it then.
        """
        cancelled: asyncio.CancelledError | None = None
        if self._transport is not None and self._lost is None:
            self._transport.write_eof()
            ends = asyncio.get_running_loop().time() + within_s
            while not self._closed.done() and (left := ends - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.wait({self._closed}, timeout=left)
                except asyncio.CancelledError as error:
                    cancelled = error
        self.close()
        if cancelled is not None:
            raise once_more(cancelled)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, from either end."""
        return self._closed.done()

    async def wait_closed(self) -> None:
        """Returns when the connection is closed, from either end."""
        await asyncio.shield(self._closed)

    # ---- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A loop of another make has transports of another class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = KeeperLost("the keeper of the checkout is gone", reason="lost")
        waiting, self._waiting = self._waiting, {}
        self._viewers.clear()
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(self._lost)
                answer.exception()  # seen: a waiter that was cancelled leaves it behind
        if not self._closed.done():
            self._closed.set_result(None)

    def _take(self, frame: Frame) -> None:
        body = frame.body
        if body is None:
            body = {"error": {"status": "too_large", "message": "the answer is larger than a frame may be"}}
        if "output" in body:
            self._show(frame.number, body)
            return
        answer = self._waiting.pop(frame.number, None)
        self._viewers.pop(frame.number, None)
        if answer is None or answer.done():
            return
        if "error" in body:
            answer.set_exception(_error(body["error"]))
            answer.exception()
        else:
            answer.set_result(body["result"])

    def _show(self, number: int, body: dict[str, Any]) -> None:
        viewer = self._viewers.get(number)
        if viewer is None:
            return
        try:
            viewer(body)
        except Exception as error:  # noqa: BLE001  a viewer's fault must not end the link of all others
            del self._viewers[number]
            context = {"message": "a viewer of a command's output failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


def _error(said: dict[str, Any]) -> WorkspaceOperationError:
    fields = {name: value for name, value in said.items() if name != "message"}
    return WorkspaceOperationError(str(said.get("message", "")), **fields)
