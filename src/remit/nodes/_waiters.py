"""Who waits for which answer of a node.

A waiter exists before its request goes out, so that no answer can come too early. An answer that
matches no waiter (its run has ended, its call was given up) is dropped and counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from remit.contract import NodeFailure, NodeResponse, ToolResponse
from remit.errors import InternalError


@dataclass(frozen=True, slots=True)
class WaitKey:
    """What an answer is matched by."""

    run_id: str
    call: str
    """The operation, with a number that is unique on the link for all but tool calls."""
    stage_id: str = ""
    tool_call_id: str = ""


class Waiters:
    """The open questions of one link, over all runs."""

    def __init__(self) -> None:
        self._futures: dict[WaitKey, asyncio.Future[NodeResponse]] = {}
        self._by_run: dict[str, int] = {}
        self.dropped = 0
        """Answers that nobody waited for."""

    def expect(self, key: WaitKey) -> asyncio.Future[NodeResponse]:
        """Register a waiter.

        Raises:
            InternalError: The same call is waited for already.
        """
        if key in self._futures:
            raise InternalError(f"two waiters for {key}")
        future: asyncio.Future[NodeResponse] = asyncio.get_running_loop().create_future()
        self._futures[key] = future
        self._by_run[key.run_id] = self._by_run.get(key.run_id, 0) + 1
        return future

    def forget(self, key: WaitKey) -> None:
        """The waiter has its answer, or has given up."""
        if self._futures.pop(key, None) is None:
            return
        left = self._by_run[key.run_id] - 1
        if left:
            self._by_run[key.run_id] = left
        else:
            del self._by_run[key.run_id]

    def deliver(self, key: WaitKey, response: NodeResponse) -> bool:
        """Hand an answer to its waiter; False when it was dropped."""
        future = self._futures.get(key)
        if future is None or future.done() or not _matches(key, response):
            self.dropped += 1
            return False
        future.set_result(response)
        return True

    def fail_all(self, failure: NodeFailure) -> None:
        """The link is gone: everybody gets this answer."""
        for future in self._futures.values():
            if not future.done():
                future.set_result(failure)

    def pending_count(self, run_id: str | None = None) -> int:
        """Open questions, of one run or of all."""
        return len(self._futures) if run_id is None else self._by_run.get(run_id, 0)


def _matches(key: WaitKey, response: NodeResponse) -> bool:
    if response.run_id != key.run_id:
        return False
    if isinstance(response, ToolResponse):
        return (response.stage_id, response.tool_call_id) == (key.stage_id, key.tool_call_id)
    return True
