"""A registry under a clock and a cleanup port that stand still until a test moves them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.contract import WorkKind
from remit.work import Cleanup, CleanupFailure, Handle, Metrics, ProbeHandle, WorkRegistry, WorkSpec

RunCleanup = Callable[[Cleanup], Coroutine[Any, Any, None]]


class StillClock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.reads = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        self.reads += 1
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def pass_ms(self, milliseconds: float) -> None:
        self.seconds += milliseconds / 1000


class HeldCleanups:
    """Keeps what the registry launches, until a test lets it run."""

    def __init__(self) -> None:
        self.held: list[tuple[Cleanup, RunCleanup]] = []

    def launch(self, batch: Sequence[Cleanup], run: RunCleanup) -> None:
        self.held.extend((cleanup, run) for cleanup in batch)

    def launched(self) -> list[tuple[str, str]]:
        """Session and work id of each handle to be fired."""
        return [(cleanup.session_id, cleanup.work_id) for cleanup, _ in self.held]

    async def run_all(self) -> None:
        held, self.held = self.held, []
        for cleanup, run in held:
            await run(cleanup)


class Fired:
    """Counts how often the handles that it makes are fired."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def handle(self, name: str = "handle", *, error: Exception | None = None) -> ProbeHandle:
        async def fire() -> None:
            self.names.append(name)
            if error is not None:
                raise error

        return ProbeHandle(fire)


class Kit:
    """A registry with everything that a test wants to look at."""

    def __init__(self, *, metrics: Metrics | None = None) -> None:
        self.clock = StillClock()
        self.cleanups = HeldCleanups()
        self.fired = Fired()
        self.failures: list[CleanupFailure] = []
        self.registry = WorkRegistry(
            clock=self.clock,
            cleanups=self.cleanups,
            metrics=metrics,
            on_cleanup_failed=self.failures.append,
        )

    def add(
        self,
        work_id: str,
        *,
        session: str = "s",
        parent: str | None = None,
        parent_session: str | None = None,
        kind: WorkKind = WorkKind.TOOL,
        handle: Handle | None = None,
        guard: object | None = None,
    ) -> tuple[bool, bool]:
        """Register an item whose handle notes its own name; returns the answer as a plain pair."""
        answer = self.registry.register(
            session,
            WorkSpec(
                work_id=work_id,
                kind=kind,
                label=f"label of {work_id}",
                handle=handle or self.fired.handle(work_id),
                parent_work_id=parent,
                parent_session_id=parent_session,
                guard=guard,
            ),
        )
        return answer.cancellable, answer.newly_registered

    def cancelled(self, *, session: str = "s") -> set[str]:
        """Ids of a session that are flagged."""
        return {found.work_id for found in self.registry.snapshot(session) if found.status == "cancelling"}
