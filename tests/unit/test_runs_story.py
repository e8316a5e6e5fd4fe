"""A run's log, printed, is a true story of what happened: what began, how long it took, what it led to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from remit.contract import RunView, Terminal, WorkRegistered
from remit.events import Event, NewEvent, number_event
from remit.runs._loose_ends import close_loose_ends
from remit.testing._fake_node import FakeNode
from remit.testing._run_world import good_replies, run_world

AT = datetime(2026, 1, 1, tzinfo=UTC)
LOST = Terminal.of("lost", "unproven")


def checked() -> FakeNode:
    """A node whose tree has a check."""
    return FakeNode({"a.txt": "old\n"}, checks={"tests": lambda files: 0})


async def test_what_a_node_did_says_how_long_it_took() -> None:
    """Node calls are put on record in pairs, after they ended: only the end can tell how long each took."""
    async with run_world(*good_replies(), node=checked()) as world:
        gate = world.node.gates["snapshot"] = asyncio.Event()
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            group.create_task(world.supervise(supervisor))
            while not any(request.kind == "snapshot" for request in world.node.requests):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.06)
            gate.set()
        ended = [event for event in await world.events(run_id) if event.type == "work.finished"]
        took = {event.data["label"]: event.data["duration_ms"] for event in reversed(ended)}
        assert took["snapshot"] >= 50
        assert all(isinstance(duration, int) and duration >= 0 for duration in took.values())
        assert {"prepare", "open", "checks", "cleanup"} <= set(took)


@pytest.mark.parametrize(
    ("child", "how"),
    [
        (None, "not_started"),
        (Terminal.completed(), "already_ended"),
        (Terminal.of("rejected", "rejected"), "already_ended"),
        (LOST, "abandoned"),
    ],
)
def test_a_dead_hosts_child_is_told_of_as_far_as_is_known(child: Terminal | None, how: str) -> None:
    """R57: a child that was announced may not have been stored, or have had its end before its host died."""
    began = NewEvent(
        type="work.registered",
        payload=WorkRegistered(kind="run", label="run_2"),
        work_id="run_2",
        parent_work_id="run_1.work-1.d1",
    )
    event: Event = number_event(began, seq=9, run_id="run_1", session_id="run_1", at=AT)
    (ended,) = close_loose_ends([event], children=_children(child), terminal=LOST)
    assert (ended.type, ended.work_id, ended.parent_work_id) == ("work.finished", "run_2", "run_1.work-1.d1")
    assert (getattr(ended.payload, "how", None), getattr(ended.payload, "duration_ms", 0)) == (how, None)


def _children(terminal: Terminal | None) -> list[RunView]:
    if terminal is None:
        return []
    view = RunView.model_validate(
        {
            "id": "run_2",
            "session_id": "run_2",
            "root_run_id": "run_1",
            "parent_run_id": "run_1",
            "binding": "b",
            "profile": "reviewed",
            "created_at": AT + timedelta(seconds=1),
            "limits": {},
        }
    )
    return [view.model_copy(update={"terminal": terminal})]


async def test_what_was_left_running_is_ended_before_the_result_is_checked() -> None:
    """R17: the node is asked to end what still runs as the result is looked at for the last time."""
    async with run_world(*good_replies(), node=checked()) as world:
        await world.drive()
        asked = [request for request in world.node.requests if request.kind in ("snapshot", "checks")]
        kinds = [(request.kind, getattr(request, "end_leftovers", False)) for request in asked]
        assert kinds[-2:] == [("snapshot", True), ("checks", False)]
