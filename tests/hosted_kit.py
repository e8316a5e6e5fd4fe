"""What the tests of hosted execution share: an input, a runner over stand-ins, and a way to abort on cue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from remit.primitives import Clock
from remit.runs import (
    HostedInput,
    HostedRun,
    IndeterminateRun,
    ModelTarget,
    OperationContext,
    Scope,
    SessionSpec,
    SettledRun,
)
from remit.testing._fake_operations import FakeBarriers, FakeOperations

EXECUTION = "0b9c2d1e-5f64-4a7b-9c3d-2e1f0a9b8c7d"
USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "cache_read_tokens": 3,
    "cache_write_tokens": 2,
    "reasoning_tokens": 1,
    "total_tokens": 18,
}
SETTLED: dict[str, Any] = {
    "id": EXECUTION,
    "kind": "settled",
    "status": "completed",
    "usage": USAGE,
    "cost_usd": 0.25,
}
NOT_ADMITTED = {"id": EXECUTION, "kind": "indeterminate", "failure_reason": "lost/not_admitted"}
UNPROVEN = {"id": EXECUTION, "kind": "indeterminate", "failure_reason": "lost/unproven"}


def hosted_input(execution_id: str = EXECUTION, **fields: Any) -> HostedInput:
    """An input as a caller states it."""
    body: dict[str, Any] = {
        "session": SessionSpec(
            folder="/home/me/app",
            target=ModelTarget(connection_id="fake", connection_slug="fake", model="model"),
        ),
        "content": "Make the failing test pass.",
        **fields,
    }
    return HostedInput(execution_id=execution_id, **body)


class TwoReadings:
    """A clock that says 100 s, then 200 s for ever, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def now(self) -> datetime:
        """The moment."""
        self.asked += 1
        return datetime.fromtimestamp(100 if self.asked == 1 else 200).astimezone()

    def monotonic(self) -> float:
        """Not for this."""
        raise AssertionError("nobody needs it")

    async def sleep(self, seconds: float) -> None:
        """Not for this."""
        raise AssertionError("nobody needs it")


@dataclass(slots=True, kw_only=True)
class Hosted:
    """A runner over stand-ins."""

    operations: FakeOperations = field(default_factory=FakeOperations)
    barriers: FakeBarriers = field(default_factory=FakeBarriers)
    scope: Scope = field(default_factory=Scope)
    context: OperationContext = field(default_factory=lambda: OperationContext(host_epoch="epoch_1"))
    single_run: bool = True
    clock: Clock | None = None

    async def run(self, wanted: HostedInput | None = None) -> SettledRun | IndeterminateRun:
        """One execution, bounded in time."""
        runner = HostedRun(
            self.operations,
            self.context,
            drain=self.barriers.drain if self.single_run else None,
            wait_execution_drained=self.barriers.wait_execution_drained,
            wait_all_drained=self.barriers.wait_all_drained,
            clock=self.clock,
        )
        async with asyncio.timeout(20):
            return await runner.run(wanted or hosted_input(), self.scope)

    async def result(self, wanted: HostedInput | None = None) -> dict[str, Any]:
        """The same, as JSON values."""
        return (await self.run(wanted)).to_json()

    def abort_on(self, name: str, *, time: int = 1) -> None:
        """Abort while this operation is asked for, or this barrier is waited for, for the so-manieth time."""
        count = 0

        def watch(called: str) -> None:
            nonlocal count
            count += called == name
            if called == name and count == time:
                self.scope.abort()

        if name in ("execution", "all"):
            self.barriers.on_wait = watch
        else:
            self.operations.on_call = watch


async def settle(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def a_while() -> None:
    """Long enough for whatever doesn't wait."""
    for _ in range(100):
        await asyncio.sleep(0)
