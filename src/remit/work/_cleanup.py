"""Handles are fired in tasks of their own, owned by a scope that waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from remit.contract import WorkKind
from remit.errors import MisuseError
from remit.primitives import Clock
from remit.work._elapsed import elapsed_ms
from remit.work._handles import Handle, fire_handle
from remit.work._metrics import Metrics

CLEANUP_TOTAL: Final = "runtime_work.cleanup_total"
CLEANUP_DURATION_MS: Final = "runtime_work.cleanup_duration_ms"

_logger = logging.getLogger("remit.work")
# Tasks started before the loop gets its turn again: a cancel of 100 000 items mustn't stop the host.
_STARTED_PER_TURN: Final = 256


class Cleanup(NamedTuple):
    """A handle that is to be fired."""

    session_id: str
    work_id: str
    kind: WorkKind
    handle: Handle
    counted: bool
    """Whether a cancel caused it; what a registration fires isn't counted and its errors are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupFailure:
    """A handle that raised. The cancel stands all the same."""

    session_id: str
    work_id: str
    kind: WorkKind
    message: str


RunCleanup = Callable[[Cleanup], Coroutine[Any, Any, None]]


class Cleanups(Protocol):
    """Where the registry lets its handles be fired."""

    def launch(self, batch: Sequence[Cleanup], run: RunCleanup) -> None:
        """Run `run(cleanup)` for each, in a task of its own, later: never before this returns."""
        ...


class CleanupRunner:
    """Fires one handle and reports what came of it."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        on_failed: Callable[[CleanupFailure], None] | None,
        mask: Callable[[str], str],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._on_failed = on_failed
        self._mask = mask

    async def run(self, cleanup: Cleanup) -> None:
        """Fire the handle. Cancellation: nothing is reported, as of a handle that never returns."""
        begun = self._clock.monotonic()
        error: Exception | None = None
        try:
            await fire_handle(cleanup.handle)
        except Exception as raised:  # noqa: BLE001 - any failure of a handle is an outcome, never a reversal
            error = raised
        if cleanup.counted:
            self._report(cleanup, error, elapsed_ms(begun, self._clock.monotonic()))

    def _report(self, cleanup: Cleanup, error: Exception | None, duration_ms: int) -> None:
        labels = {"work_kind": cleanup.kind.value, "outcome": "failed" if error else "completed"}
        self._metrics.count(CLEANUP_TOTAL, labels=labels)
        self._metrics.record_ms(CLEANUP_DURATION_MS, duration_ms, labels=labels)
        if error is None:
            _logger.debug("cleanup of %s/%s completed", cleanup.session_id, cleanup.work_id)
            return
        message = self._mask(str(error) or type(error).__name__)
        _logger.warning("cleanup of %s/%s failed: %s", cleanup.session_id, cleanup.work_id, message)
        if self._on_failed is not None:
            self._on_failed(
                CleanupFailure(
                    session_id=cleanup.session_id,
                    work_id=cleanup.work_id,
                    kind=cleanup.kind,
                    message=message,
                )
            )


class CleanupScope:
    """Owns the tasks in which handles are fired; leaving it waits for them, within bounds.

    Args:
        grace_s: Seconds that handles still running at the end get before their tasks are cancelled.
    """

    def __init__(self, *, grace_s: float = 5.0) -> None:
        self._grace_s = grace_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[tuple[Iterator[Cleanup], RunCleanup]] = deque()
        self._queued = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_due = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._drain()
        finally:
            self._loop = None
            self._queue.clear()
            self._queued = 0
            await self._cancel_rest()

    @property
    def pending(self) -> int:
        """Handles that haven't returned yet."""
        return self._queued + len(self._tasks)

    def launch(self, batch: Sequence[Cleanup], run: RunCleanup) -> None:
        """Fire these handles, each in a task of its own, from the loop's next turn on.

        Raises:
            MisuseError: The scope hasn't been entered, or has been left.
        """
        if self._loop is None:
            raise MisuseError("work can be cancelled only while the registry's cleanup scope is open")
        self._queue.append((iter(batch), run))
        self._queued += len(batch)
        self._schedule(self._loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._queue and not self._turn_due:
            self._turn_due = True
            loop.call_soon(self._start_some)

    def _start_some(self) -> None:
        self._turn_due = False
        if self._loop is None:
            return
        left = _STARTED_PER_TURN
        while self._queue and left:
            batch, run = self._queue[0]
            started = 0
            for cleanup in islice(batch, left):
                task = self._loop.create_task(run(cleanup))
                self._tasks.add(task)
                task.add_done_callback(self._forget)
                started += 1
            self._queued -= started
            if started < left:
                self._queue.popleft()
            left -= started
        self._schedule(self._loop)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("the report of a cleanup failed", exc_info=error)

    async def _drain(self) -> None:
        assert self._loop is not None
        until = self._loop.time() + self._grace_s
        while self.pending and (left := until - self._loop.time()) > 0:
            if self._tasks and not self._queued:
                await asyncio.wait(self._tasks, timeout=left)
            else:
                await asyncio.sleep(0)

    async def _cancel_rest(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=1.0)
            if stuck:
                _logger.error("%d cleanups don't end, even when they are cancelled", len(stuck))
