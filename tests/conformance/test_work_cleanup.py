"""The work registry: what is told of the handles that a cancel fires."""

from __future__ import annotations

import asyncio
import logging

import pytest

from remit.contract import WorkKind
from remit.work import (
    CLEANUP_DURATION_MS,
    CLEANUP_TOTAL,
    CancelToken,
    CleanupScope,
    DeliveryHandle,
    DurableFlagHandle,
    Handle,
    InvocationHandle,
    Metrics,
    NodeCallHandle,
    ProbeHandle,
    ScopeHandle,
    ServiceCallHandle,
    StreamHandle,
    WorkRegistry,
    WorkSpec,
)
from work_kit import Kit, StillClock


async def test_each_cleanup_of_a_cancel_is_counted_once_its_handle_has_returned() -> None:
    """B51, B52: labels work_kind and outcome; never a work id or a session id."""
    kit = Kit()
    kit.add("a", session="session-one", kind=WorkKind.RUN)
    kit.add(
        "b", session="session-one", kind=WorkKind.TOOL, parent="a",
        handle=kit.fired.handle("b", error=OSError("boom")),
    )  # fmt: skip
    kit.registry.cancel("session-one", "a")
    assert kit.registry.metrics.counters() == ()
    await kit.cleanups.run_all()
    counted = {tuple(sorted(found.labels.items())): found.value for found in kit.registry.metrics.counters()}
    assert counted == {
        (("outcome", "completed"), ("work_kind", "run")): 1,
        (("outcome", "failed"), ("work_kind", "tool")): 1,
    }
    assert {found.name for found in kit.registry.metrics.counters()} == {CLEANUP_TOTAL}
    assert [found.labels for found in kit.registry.metrics.histograms()] == [
        found.labels for found in kit.registry.metrics.counters()
    ]
    told = repr(kit.registry.metrics.counters()) + repr(kit.registry.metrics.histograms())
    assert "session-one" not in told


async def test_handles_fired_by_a_registration_count_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """B51: and their errors are dropped, as are those of one that is put in place of another (B66)."""
    caplog.set_level(logging.DEBUG, logger="remit.work")
    kit = Kit()
    kit.add("a")
    kit.registry.cancel("s", "a")
    kit.cleanups.held.clear()
    kit.add("born", parent="a", handle=kit.fired.handle("born", error=OSError("dropped")))
    kit.add("a", handle=kit.fired.handle("again", error=OSError("dropped")))
    kit.registry.replace_cancellation("s", "a", kit.fired.handle("new", error=OSError("dropped")))
    await kit.cleanups.run_all()
    assert sorted(kit.fired.names) == ["again", "born", "new"]
    assert kit.registry.metrics.counters() == ()
    assert kit.registry.metrics.histograms() == ()
    assert kit.failures == []
    assert caplog.records == []


async def test_who_sees_the_counter_sees_the_histogram() -> None:
    """B53: the same labels, whole milliseconds, in one step."""
    clock, metrics = StillClock(), Metrics()
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=clock, cleanups=scope, metrics=metrics)

        async def slow() -> None:
            clock.pass_ms(41.9)

        spec = WorkSpec(work_id="a", kind=WorkKind.MODEL_TURN, label="", handle=ProbeHandle(slow))
        registry.register("s", spec)
        registry.cancel("s", "a")
        while not metrics.counters():
            await asyncio.sleep(0)
        (histogram,) = metrics.histograms()
    (counter,) = metrics.counters()
    assert histogram.name == CLEANUP_DURATION_MS
    assert histogram.labels == counter.labels == {"work_kind": "model_turn", "outcome": "completed"}
    assert (histogram.count, histogram.sum_ms) == (1, 41)
    assert sum(histogram.buckets) == 1


@pytest.mark.parametrize(("passed_s", "recorded_ms"), [(-0.5, 0), (1e300, 2**53 - 1)])
async def test_duration_saturates(passed_s: float, recorded_ms: int) -> None:
    """B53: a clock that goes back gives 0, one that goes wild the longest there is, and so does a sum."""
    clock, metrics = StillClock(), Metrics()
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=clock, cleanups=scope, metrics=metrics)

        async def odd() -> None:
            clock.seconds += passed_s

        for work_id in ("a", "b"):
            spec = WorkSpec(work_id=work_id, kind=WorkKind.TOOL, label="", handle=ProbeHandle(odd))
            clock.seconds = 1_000.0
            registry.register("s", spec)
            registry.cancel("s", work_id)
            while metrics.snapshot().get(CLEANUP_TOTAL, 0) < (1 if work_id == "a" else 2):
                await asyncio.sleep(0)
    (histogram,) = metrics.histograms()
    assert (histogram.count, histogram.sum_ms) == (2, recorded_ms)


async def test_handle_that_never_returns_is_recorded_nowhere() -> None:
    """B53: neither when it blocks, nor when its task is cancelled at the end."""
    metrics = Metrics()
    async with CleanupScope(grace_s=0.02) as scope:
        registry = WorkRegistry(clock=StillClock(), cleanups=scope, metrics=metrics)
        begun = asyncio.Event()

        async def never() -> None:
            begun.set()
            await asyncio.Event().wait()

        registry.register("s", WorkSpec(work_id="a", kind=WorkKind.TOOL, label="", handle=ProbeHandle(never)))
        registry.cancel("s", "a")
        await asyncio.wait_for(begun.wait(), 5)
    assert metrics.counters() == ()
    assert metrics.histograms() == ()
    assert scope.pending == 0


async def test_snapshot_sums_over_labels() -> None:
    """B54: unlabelled it is one number; the labels are in the report."""
    kit = Kit()
    kit.add("a", kind=WorkKind.WORKFLOW)
    kit.registry.cancel("s", "a")
    await kit.cleanups.run_all()
    assert kit.registry.metrics.snapshot() == {CLEANUP_TOTAL: 1}
    (counter,) = kit.registry.metrics.counters()
    assert counter.labels == {"work_kind": "workflow", "outcome": "completed"}
    kit.add("b", kind=WorkKind.TOOL)
    kit.registry.cancel("s", "b")
    await kit.cleanups.run_all()
    assert kit.registry.metrics.snapshot() == {CLEANUP_TOTAL: 2}


async def test_each_kind_of_handle_does_its_own_thing() -> None:
    """B55: scopes and deliveries are told, tokens tripped, the rest is awaited and may fail with a text."""
    told: list[str] = []

    async def store(name: str, error: Exception | None = None) -> None:
        told.append(name)
        if error is not None:
            raise error

    service, invocation = CancelToken(), CancelToken()
    handles: dict[str, Handle] = {
        "scope": ScopeHandle(lambda: told.append("scope")),
        "delivery": DeliveryHandle(lambda: told.append("delivery")),
        "service": ServiceCallHandle(service),
        "invocation": InvocationHandle(invocation),
        "stream": StreamHandle(lambda: store("stream")),
        "node": NodeCallHandle(lambda: store("node")),
        "durable": DurableFlagHandle(lambda: store("durable", OSError("the store is away"))),
        "probe": ProbeHandle(lambda: store("probe")),
    }
    kit = Kit()
    for name, handle in handles.items():
        kit.add(name, handle=handle)
        kit.registry.cancel("s", name)
    await kit.cleanups.run_all()
    assert sorted(told) == ["delivery", "durable", "node", "probe", "scope", "stream"]
    assert service.tripped
    assert invocation.tripped
    assert [failure.message for failure in kit.failures] == ["the store is away"]


async def test_scope_handle_cancels_a_turn_and_its_tasks() -> None:
    """B55: a run's or a node's live turn is reached through its scope."""
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=StillClock(), cleanups=scope)

        async def turn() -> None:
            task = asyncio.current_task()
            assert task is not None
            spec = WorkSpec(work_id="a", kind=WorkKind.RUN, label="", handle=ScopeHandle(task.cancel))
            registry.register("s", spec)
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(turn())
            while not registry.active_count():
                await asyncio.sleep(0)
            registry.cancel("s", "a")
        assert task.cancelled()


async def test_metrics_are_the_registrys_own_unless_given() -> None:
    """B58: two registries don't mix; given ones can be read by others."""
    own, other = Kit(), Kit()
    shared = Metrics()
    given = Kit(metrics=shared)
    for kit in (own, given):
        kit.add("a")
        kit.registry.cancel("s", "a")
        await kit.cleanups.run_all()
    assert own.registry.metrics.snapshot() == {CLEANUP_TOTAL: 1}
    assert other.registry.metrics.snapshot() == {}
    assert given.registry.metrics is shared
    assert shared.snapshot() == {CLEANUP_TOTAL: 1}


@pytest.mark.parametrize(
    "word",
    [
        "run", "stage", "model_turn", "tool", "node_call", "plugin_invocation", "event_delivery", "workflow",
        "workflow_node",
    ],
)  # fmt: skip
async def test_kind_words_are_the_labels(word: str) -> None:
    """B71: the six words of the checklist, and our own three."""
    kit = Kit()
    kit.add("a", kind=WorkKind(word))
    kit.registry.cancel("s", "a")
    await kit.cleanups.run_all()
    assert kit.registry.metrics.counters()[0].labels["work_kind"] == word


async def test_cleanups_are_logged_with_their_ids(caplog: pytest.LogCaptureFixture) -> None:
    """B72, R79: debug when completed, a warning with the masked error text when failed."""
    caplog.set_level(logging.DEBUG, logger="remit.work")
    kit = Kit()
    kit.registry._runner._mask = lambda text: text.replace("hunter2", "[redacted]")
    kit.add("good", session="s1")
    kit.add("bad", session="s2", handle=kit.fired.handle("bad", error=OSError("key hunter2 refused")))
    kit.registry.cancel("s1", "good")
    kit.registry.cancel("s2", "bad")
    await kit.cleanups.run_all()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("DEBUG", "cleanup of s1/good completed"),
        ("WARNING", "cleanup of s2/bad failed: key [redacted] refused"),
    ]


async def test_leaving_the_scope_waits_for_its_cleanups() -> None:
    """What was launched is fired and awaited, also the many that are started in turns."""
    done: list[int] = []
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=StillClock(), cleanups=scope)
        root = WorkSpec(work_id="r", kind=WorkKind.RUN, label="", handle=ScopeHandle(lambda: None))
        registry.register("s", root)

        async def fire() -> None:
            await asyncio.sleep(0.001)
            done.append(1)

        for number in range(700):
            spec = WorkSpec(
                work_id=f"w{number}", kind=WorkKind.TOOL, label="", handle=ProbeHandle(fire),
                parent_work_id="r",
            )  # fmt: skip
            registry.register("s", spec)
        registry.cancel("s", "r")
        assert done == []
        assert scope.pending == 701
    assert len(done) == 700
    assert scope.pending == 0


async def test_report_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A broken listener harms neither the registry nor the other cleanups."""

    def broken(failure: object) -> None:
        raise RuntimeError("listener")

    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=StillClock(), cleanups=scope, on_cleanup_failed=broken)

        async def fail() -> None:
            raise OSError("no")

        spec = WorkSpec(work_id="a", kind=WorkKind.TOOL, label="", handle=ProbeHandle(fail))
        registry.register("s", spec)
        registry.cancel("s", "a")
    assert "the report of a cleanup failed" in caplog.text
    assert registry.metrics.snapshot() == {CLEANUP_TOTAL: 1}
