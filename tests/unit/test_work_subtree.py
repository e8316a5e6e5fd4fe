"""Waiting for a part of the tree, and the receipt of what was stopped."""

from __future__ import annotations

import asyncio

import pytest

from work_kit import Kit


async def _settled(task: asyncio.Task[object]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_wait_returns_when_the_subtree_is_empty() -> None:
    """Asking and waiting are two tools: cancel returns at once, the wait when the last item has ended."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.add("c", parent="b")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kit.registry.wait_closed("s", "a"))
        assert not await _settled(waiting)
        kit.registry.cancel("s", "a")
        kit.registry.finish("s", "b")
        kit.registry.finish("s", "c")
        assert not await _settled(waiting)
        kit.registry.finish("s", "a")
        assert await _settled(waiting)


async def test_owner_waits_for_what_hangs_below() -> None:
    """The item itself is left out: its owner ends it last."""
    kit = Kit()
    kit.add("run")
    kit.add("stage", parent="run")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kit.registry.wait_children_closed("s", "run"))
        assert not await _settled(waiting)
        kit.add("tool", parent="stage")
        kit.registry.finish("s", "stage")
        assert not await _settled(waiting)
        kit.registry.finish("s", "tool")
        assert await _settled(waiting)
    assert kit.registry.active_ids_for_session("s") == ("run",)


async def test_wait_for_what_is_not_registered_returns_at_once() -> None:
    """What isn't there has ended."""
    kit = Kit()
    assert await kit.registry.wait_closed("s", "unknown") == ()
    kit.add("a")
    assert await kit.registry.wait_children_closed("s", "a") == ()


async def test_wait_goes_on_for_what_a_finished_item_left_behind() -> None:
    """Children of an item that has ended belong to the wait until they have ended too."""
    kit = Kit()
    kit.add("run")
    kit.add("stage", parent="run")
    kit.add("tool", parent="stage")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kit.registry.wait_closed("s", "stage"))
        assert not await _settled(waiting)
        kit.registry.finish("s", "stage")
        kit.add("late", parent="tool")
        assert not await _settled(waiting)
        kit.registry.finish("s", "tool")
        assert not await _settled(waiting)
        kit.registry.finish("s", "late")
        assert await _settled(waiting)


async def test_receipt_names_each_item_with_how_and_how_fast() -> None:
    """R1, R3: what ended since the cancel, late-comers included, from the moment of the cancel."""
    kit = Kit()
    kit.add("run")
    kit.add("done", parent="run")
    kit.add("tool", parent="run")
    kit.registry.finish("s", "done")
    kit.clock.pass_ms(1_000)
    kit.registry.cancel("s", "run")
    kit.clock.pass_ms(12)
    kit.add("late", parent="run")
    kit.registry.finish("s", "late", "not_started")
    kit.clock.pass_ms(8)
    kit.registry.finish("s", "tool", "kill", pids=(41, 42))
    items = await kit.registry.wait_children_closed("s", "run")
    assert [(item.work_id, item.how, item.ms, item.pids) for item in items] == [
        ("late", "not_started", 12, ()),
        ("tool", "kill", 20, (41, 42)),
    ]
    assert items[1].label == "label of tool"
    assert kit.registry.closed_items("s", "run") == items
    assert [item.work_id for item in kit.registry.open_items("s", "run")] == ["run"]


async def test_receipt_of_a_run_names_what_was_being_stopped_already() -> None:
    """R1: a tool call that somebody cancelled before is a part of the run's receipt too, with its time."""
    kit = Kit()
    kit.add("run")
    kit.add("tool", parent="run")
    kit.registry.cancel("s", "tool")
    kit.clock.pass_ms(100)
    kit.registry.cancel("s", "run")
    kit.clock.pass_ms(5)
    kit.registry.finish("s", "tool", "term")
    assert [(item.work_id, item.ms) for item in kit.registry.closed_items("s", "run")] == [("tool", 5)]
    assert [(item.work_id, item.ms) for item in kit.registry.closed_items("s", "tool")] == [("tool", 105)]


def test_open_items_name_what_could_not_be_stopped() -> None:
    """R1: what is to be named as abandoned, with kind and label."""
    kit = Kit()
    kit.add("run")
    kit.add("tool", parent="run")
    kit.registry.cancel("s", "run")
    found = kit.registry.open_items("s", "run")
    assert [(item.work_id, item.kind.value, item.label) for item in found] == [
        ("run", "tool", "label of run"),
        ("tool", "tool", "label of tool"),
    ]
    assert kit.registry.open_items("s", "unknown") == ()


async def test_registering_again_keeps_its_place_in_the_wait() -> None:
    """B3, as far as waits go: the wait is for the id's present registration."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.registry.cancel("s", "a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kit.registry.wait_closed("s", "a"))
        assert not await _settled(waiting)
        kit.add("b")
        kit.add("a")
        kit.registry.finish("s", "a")
        assert not await _settled(waiting)
        kit.registry.finish("s", "b")
        assert await _settled(waiting)


async def test_wait_that_is_cancelled_leaves_everything_as_it_was() -> None:
    """Cancellation of the waiter: the work goes on stopping, and others can wait."""
    kit = Kit()
    kit.add("a")
    kit.registry.cancel("s", "a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await kit.registry.wait_closed("s", "a")
    kit.registry.finish("s", "a", "term")
    assert [item.how for item in await kit.registry.wait_closed("s", "a")] == []
    assert kit.registry.active_count() == 0


async def test_parent_that_comes_late_is_waited_for_with_its_children() -> None:
    """Children registered before their parent join the wait with it."""
    kit = Kit()
    kit.add("run")
    kit.add("tool", parent="stage")
    async with asyncio.TaskGroup() as group:
        kit.registry.cancel("s", "run")
        kit.add("stage", parent="run")
        waiting = group.create_task(kit.registry.wait_children_closed("s", "run"))
        assert not await _settled(waiting)
        kit.registry.finish("s", "stage")
        assert not await _settled(waiting)
        kit.registry.finish("s", "tool", "kill")
        assert await _settled(waiting)
    assert [item.work_id for item in waiting.result()] == ["stage", "tool"]


async def test_wait_for_an_item_that_was_cancelled_with_its_parent_tells_how_it_ended() -> None:
    """R1: a part of a cancelled run has a receipt of its own, from the moment of that cancel."""
    kit = Kit()
    kit.add("run")
    kit.add("stage", parent="run")
    kit.add("tool", parent="stage")
    kit.registry.cancel("s", "run")
    kit.clock.pass_ms(3)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kit.registry.wait_closed("s", "stage"))
        assert not await _settled(waiting)
        kit.registry.finish("s", "tool", "kill")
        kit.registry.finish("s", "stage")
    assert [(item.work_id, item.how, item.ms) for item in waiting.result()] == [
        ("tool", "kill", 3),
        ("stage", "closed", 3),
    ]


@pytest.mark.parametrize("kept_before", [True, False])
def test_a_cancel_from_above_has_a_receipt_below_as_well(kept_before: bool) -> None:
    """R1: an account that was asked for names what ended after a cancel from above, from then on."""
    kit = Kit()
    kit.add("run")
    kit.add("call", parent="run")
    if not kept_before:  # born below what is being stopped
        kit.registry.cancel("s", "run")
    kit.add("child", session="s2", parent="call", parent_session="s")
    kit.registry.keep_account("s2", "child")
    kit.add("done", session="s2", parent="child")
    kit.registry.finish("s2", "done")
    kit.add("tool", session="s2", parent="child")
    if kept_before:
        kit.registry.cancel("s", "run")
    kit.clock.pass_ms(9)
    kit.registry.finish("s2", "tool", "term", pids=(7,))
    told = kit.registry.closed_items("s2", "child")
    expected = [("tool", "term", 9, (7,))]
    assert [(item.work_id, item.how, item.ms, item.pids) for item in told][-1:] == expected
    assert len(told) == (1 if kept_before else 2)
    assert "tool" in [item.work_id for item in kit.registry.closed_items("s", "run")]


def test_what_was_handed_up_to_a_parent_that_comes_later_is_reached() -> None:
    """B5, R3: a session's last item goes; its child elsewhere hangs below its parent, when that comes."""
    kit = Kit()
    kit.add("middle", session="s2", parent="top")
    kit.add("below", session="s1", parent="middle", parent_session="s2")
    assert kit.registry.take("s2", "middle") is not None
    kit.add("top", session="s2")
    kit.registry.cancel("s2", "top")
    assert kit.cancelled(session="s1") == {"below"}
