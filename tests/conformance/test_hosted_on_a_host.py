"""Hosted execution on a real host: SQLite, a scripted model, a sandboxed workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from host_kit import COMPLETES, FAILS, MODEL, THINKS, WAITS, open_host, request
from hosted_kit import EXECUTION
from remit.errors import Draining
from remit.host import Host, HostStatus
from remit.runs import (
    HostedInput,
    HostedOperations,
    ModelTarget,
    OperationContext,
    Scope,
    SessionSpec,
)
from remit.testing._hosted_suite import OperationsSuite
from remit.work import Residencies

TARGET = ModelTarget(connection_id="demo", connection_slug="demo", model="model")


class HostHarness:
    """The dispatcher of a real host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.operations: HostedOperations = host.operations

    def context(self, epoch: str | None = None) -> OperationContext:
        return OperationContext(
            host_epoch=epoch or self.host.epoch, residencies=Residencies(parent=self.host._residencies)
        )

    def stale_context(self) -> OperationContext:
        return self.context("epoch_before")

    def spec(self) -> SessionSpec:
        return SessionSpec(workspace=None, model=MODEL)

    async def until_working(self, turn_id: str) -> None:
        await until_working(self.host, turn_id)


async def until_working(host: Host, run_id: str) -> None:
    """Return once the run is in a tool call."""
    async with asyncio.timeout(60):
        async for event in host.open_run(run_id).events():
            if event.type == "tool.started":
                return


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[Host]:
    async with open_host(tmp_path) as made:
        yield made


@pytest.mark.slow
class TestHost(OperationsSuite):
    """M6, M8, M28, M29, M30, M31: the same rules, on SQLite, a sandbox and a scripted model."""

    @pytest.fixture
    async def harness(self, host: Host) -> HostHarness:
        return HostHarness(host)


def wanted(folder: Path, text: str = COMPLETES) -> HostedInput:
    """An input for the workspace in the folder."""
    session = SessionSpec(folder=str(folder / "app"), target=TARGET)
    return HostedInput(execution_id=EXECUTION, session=session, content=text)


async def run(host: Host, folder: Path, text: str = COMPLETES, scope: Scope | None = None) -> dict[str, Any]:
    """A hosted execution's result, as JSON values."""
    async with asyncio.timeout(60):
        return (await host.hosted().run(wanted(folder, text), scope or Scope())).to_json()


async def test_a_result_in_full(host: Host, tmp_path: Path) -> None:
    """M3, M4, M5, M7, M27, M31: four attempts of 11/7/3/2/1/18; a scripted model is free: cost 0."""
    assert await run(host, tmp_path) == {
        "id": EXECUTION,
        "kind": "settled",
        "status": "completed",
        "usage": {
            "input_tokens": 44,
            "output_tokens": 28,
            "cache_read_tokens": 12,
            "cache_write_tokens": 8,
            "reasoning_tokens": 4,
            "total_tokens": 72,
        },
        "cost_usd": 0,
    }
    assert host.residencies == {}


async def test_an_abort_on_a_shared_host(host: Host, tmp_path: Path) -> None:
    """M15, M17, M18, M22: the run is stopped down to its command; the host goes on, as do its other runs."""
    other = await host.start(request(WAITS))
    await until_working(host, other.id)
    scope = Scope()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(run(host, tmp_path, WAITS, scope))
        while await host.find_run(EXECUTION) is None:
            await asyncio.sleep(0.01)
        await until_working(host, EXECUTION)
        scope.abort()
    assert result.result()["status"] == "cancelled"
    assert host.status is HostStatus.READY
    assert not (await other.view()).status.ended
    assert (await other.cancel()).changed


async def test_an_abort_on_a_host_of_one_run(tmp_path: Path) -> None:
    """M15, M17: that host takes nothing more."""
    scope = Scope()
    async with open_host(tmp_path, single_run=True) as host:
        async with asyncio.TaskGroup() as group:
            result = group.create_task(run(host, tmp_path, WAITS, scope))
            while await host.find_run(EXECUTION) is None:
                await asyncio.sleep(0.01)
            await until_working(host, EXECUTION)
            assert host.status is HostStatus.READY
            scope.abort()
            assert host.status is HostStatus.DRAINING
        assert result.result()["status"] == "cancelled"
        with pytest.raises(Draining):
            await host.start(request())


async def test_a_cancel_on_a_host_of_one_run(tmp_path: Path) -> None:
    """M15: a cancel by its handle drains it too; one of an unknown or an ended run doesn't (Decision 7)."""
    async with open_host(tmp_path, single_run=True) as host:
        run_ = await host.start(request())
        await run_.wait()
        assert not (await run_.cancel()).changed
        await host.cancel("unknown", tombstone=True)
        assert host.status is HostStatus.READY
        other = await host.start(request(THINKS))
        assert (await other.cancel()).changed
        assert host.status is HostStatus.DRAINING


async def test_an_abort_before_anything(host: Host, tmp_path: Path) -> None:
    """M20, M21, M36: nothing is admitted, nothing stored."""
    scope = Scope()
    scope.abort()
    assert await run(host, tmp_path, scope=scope) == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "lost/not_admitted",
    }
    assert await host.find_run(EXECUTION) is None


async def test_an_abort_in_an_attempt(host: Host, tmp_path: Path) -> None:
    """M10, M37: the request that was cut is missing from the bill; the stored run is cancelled."""
    scope = Scope()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(run(host, tmp_path, THINKS, scope))
        while (view := await host.find_run(EXECUTION)) is None or view.status.value != "planning":
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        scope.abort()
    assert result.result()["failure_reason"] == "usage/missing_attempt_usage"
    view = await host.find_run(EXECUTION)
    assert view is not None
    assert view.status.value == "cancelled"


async def test_a_failed_run(host: Host, tmp_path: Path) -> None:
    """M13, M34: the class and code of its terminal, with usage and cost like any other."""
    result = await run(host, tmp_path, FAILS)
    assert (result["status"], result["failure_reason"], result["cost_usd"]) == ("failed", "provider/auth", 0)


@pytest.mark.parametrize("what", ["folder", "target"])
async def test_what_isnt_there(host: Host, tmp_path: Path, what: str) -> None:
    """M24, M38: an input that can't be carried out is a result, too."""
    spec = wanted(tmp_path).session
    changed = (
        {"folder": str(tmp_path / "elsewhere")}
        if what == "folder"
        else {"target": ModelTarget(connection_id="no", connection_slug="no", model="m")}
    )
    other = wanted(tmp_path).model_copy(update={"session": spec.model_copy(update=changed)})
    async with asyncio.timeout(60):
        result = await host.hosted().run(other, Scope())
    assert result.to_json() == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "lost/unproven",
    }
    assert host.status is HostStatus.READY
