"""A link that needs no wire: to the node in the host's own process."""

from __future__ import annotations

import asyncio
from types import TracebackType

from remit.contract import NodeRequest
from remit.errors import NodeError
from remit.nodes._asking import AskingLink, answer_of
from remit.nodes._ports import NodeHandler
from remit.nodes._waiters import WaitKey


class InProcessLink(AskingLink):
    """The link to the node that lives in the host's own process.

    The node's work is owned by this link, not by who asked: a caller that goes away drops its waiter, and the
    node goes on until it is told to cancel, exactly as over a wire.
    """

    def __init__(self, handler: NodeHandler, *, node_id: str = "local") -> None:
        super().__init__(node_id=node_id)
        self._handler = handler
        self._group: asyncio.TaskGroup | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> InProcessLink:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is not None:
            for task in self._serving:
                task.cancel()  # nobody is left to hear the answer, or to say stop
            await group.__aexit__(None, None, None)  # an error of the block's stays what it is

    def _send(self, number: int, key: WaitKey, request: NodeRequest) -> None:
        if self._group is None:
            raise NodeError("the link to the node is closed", reason="lost")
        task = self._group.create_task(
            self._serve(key, request), name=f"node {request.kind} {request.run_id}"
        )
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, key: WaitKey, request: NodeRequest) -> None:
        self.waiters.deliver(key, await answer_of(self._handler, request, node_id=self.node_id))
