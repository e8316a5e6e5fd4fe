"""The work registry: lists and counts."""

from __future__ import annotations

import dataclasses

import pytest

from remit.contract import WorkKind
from remit.work import ActivityCount, Observation, ObservedStage, WorkSnapshot, WorkSpec
from work_kit import Kit


def _observed(kit: Kit, work_id: str, stage: ObservedStage, *, session: str = "s") -> None:
    token = kit.registry.observation_token(session, work_id)
    assert token is not None
    assert kit.registry.observe(token, stage) is not None


def test_session_snapshot_shows_its_fields() -> None:
    """B38: status running or cancelling, and an observation once a stage was observed, none before."""
    kit = Kit()
    spec = WorkSpec(
        work_id="a", kind=WorkKind.TOOL, label="pytest -q", handle=kit.fired.handle(), tool_call_id="call_1"
    )
    kit.registry.register("s", spec)
    before = WorkSnapshot(
        work_id="a", kind=WorkKind.TOOL, label="pytest -q", tool_call_id="call_1", status="running",
        observation=None, cancellable=True,
    )  # fmt: skip
    assert kit.registry.snapshot("s") == (before,)
    _observed(kit, "a", ObservedStage.RECEIPT_WAIT)
    kit.clock.pass_ms(25)
    kit.registry.cancel("s", "a")
    after = dataclasses.replace(
        before,
        status="cancelling",
        observation=Observation(stage=ObservedStage.RECEIPT_WAIT, elapsed_ms=25),
    )
    assert kit.registry.snapshot("s") == (after,)
    assert kit.registry.snapshot("unknown") == ()


def test_active_all_is_the_same_with_the_session() -> None:
    """B39, B68: ordered by session, then work id."""
    kit = Kit()
    kit.add("b", session="s2")
    kit.add("a", session="s2")
    kit.add("z", session="s1")
    _observed(kit, "a", ObservedStage.CLEANUP, session="s2")
    found = kit.registry.active_all()
    assert [(session, item.work_id) for session, item in found] == [("s1", "z"), ("s2", "a"), ("s2", "b")]
    assert found[1][1].observation == Observation(stage=ObservedStage.CLEANUP, elapsed_ms=0)
    assert tuple(item for session, item in found if session == "s2") == kit.registry.snapshot("s2")


def test_active_ids_are_a_sorted_set_of_one_session() -> None:
    """B40, B68: current ids, each once, cancelled ones included."""
    kit = Kit()
    for work_id in ("b", "a", "c", "a"):
        kit.add(work_id)
    kit.add("x", session="other")
    kit.registry.cancel("s", "b")
    assert kit.registry.active_ids_for_session("s") == ("a", "b", "c")
    kit.registry.finish("s", "a")
    assert kit.registry.active_ids_for_session("s") == ("b", "c")
    kit.add("aa")
    assert kit.registry.active_ids_for_session("s") == ("aa", "b", "c")
    assert kit.registry.active_ids_for_session("unknown") == ()


def test_active_count_counts_all_sessions() -> None:
    """B41: replaced ones once."""
    kit = Kit()
    kit.add("a", session="s1")
    kit.add("a", session="s2")
    kit.add("a", session="s2")
    assert kit.registry.active_count() == 2
    kit.registry.finish("s1", "a")
    assert kit.registry.active_count() == 1


@pytest.mark.parametrize(
    ("budget", "count", "complete"),
    [(0, 0, False), (1, 1, False), (2, 2, False), (3, 3, True), (4, 3, True), (-1, 0, False)],
)
def test_activity_is_counted_up_to_a_budget(budget: int, count: int, complete: bool) -> None:
    """B42, B70: cancelled ones and those without a stage count, foreign sessions don't."""
    kit = Kit()
    for work_id in ("a", "b", "c"):
        kit.add(work_id)
    kit.add("x", session="other")
    kit.registry.cancel("s", "a")
    _observed(kit, "b", ObservedStage.DISPATCH)
    assert kit.registry.activity_count("s", budget=budget) == ActivityCount(count, complete=complete)


def test_activity_of_an_idle_session_is_complete() -> None:
    """B70: with a budget of 0 too, or of less, which is the same."""
    for budget in (1, 0, -1):
        assert Kit().registry.activity_count("s", budget=budget) == ActivityCount(0, complete=True)


def test_snapshot_has_seven_fields_and_no_more() -> None:
    """B69: parent, plugin id, interface, operation and guard don't leave the registry."""
    names = [field.name for field in dataclasses.fields(WorkSnapshot)]
    assert names == ["work_id", "kind", "label", "tool_call_id", "status", "observation", "cancellable"]


def test_nothing_is_kept_of_a_session_that_has_ended() -> None:
    """A host that runs for weeks holds no trace of ended work, in whatever order parents and children end."""
    kit = Kit()
    for session in ("s1", "s2"):
        kit.add("a", session=session)
        kit.add("b", session=session, parent="a")
        kit.add("c", session=session, parent="unknown")
        kit.add("d", session=session, parent="a", parent_session="s3")
    kit.registry.cancel("s1", "a")
    for work_id in ("a", "c", "b", "d"):
        for session in ("s1", "s2"):
            kit.registry.finish(session, work_id)
    assert kit.registry._tree.sessions == {}
    assert kit.registry.active_count() == 0
