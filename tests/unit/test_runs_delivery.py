"""How a run delivers: to a branch, after a person's word, or not at all; and what is shown of it later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from remit.contract import Delivery, NodeFailure, PatchSummary, RunStatus, RunView
from remit.results import commit_message
from remit.runs import HistoryEntry, RunTimes, newest_delivery
from remit.runs._deliveries import ended_delivery
from remit.testing._fake_node import FakeNode
from remit.testing._run_world import RunWorld, good_replies, run_world

TREE = {"a.txt": "old\n"}
TIMES = RunTimes(link_grace_ms=0)


async def drive_with(world: RunWorld, answer: bool | None, **body: Any) -> tuple[RunView, RunView]:
    """The run while it waited for a person's word, and as it ended. None: it is cancelled instead."""
    supervisor = await world.admit(**body)
    run_id, control = next(iter(world.controls.items()))
    async with asyncio.TaskGroup() as group:
        driving = group.create_task(world.supervise(supervisor))
        async with asyncio.timeout(20):
            while control.approval is None or (await view_of(world, run_id)).delivery is None:
                await asyncio.sleep(0.002)
        waiting = await view_of(world, run_id)
        if answer is None:
            world.cancel(run_id)
        else:
            assert control.approve(answer)
            assert not control.approve(not answer), "the first word counts"
        ended = await driving
    assert not control.approve(True), "nobody waits any more"
    return waiting, ended


async def view_of(world: RunWorld, run_id: str) -> RunView:
    stored = await world.store.find_run(run_id)
    assert stored is not None
    return stored.view


@pytest.mark.parametrize(
    ("mode", "answer", "kind", "status"),
    [
        ("apply", True, "completed", "delivered"),
        ("patch", True, "completed", "delivered"),
        ("branch", True, "completed", "delivered"),
        ("apply", False, "completed", "discarded"),
        ("branch", False, "completed", "discarded"),
        ("apply", None, "cancelled", "skipped"),
    ],
)
async def test_a_persons_word_is_waited_for(mode: str, answer: bool | None, kind: str, status: str) -> None:
    """Approval that is asked for waits in finalizing with the patch to look at; only a yes delivers."""
    async with run_world(*good_replies(), times=TIMES) as world:
        waiting, ended = await drive_with(world, answer, delivery={"mode": mode, "approval": "required"})
        assert waiting.status is RunStatus.FINALIZING
        assert waiting.delivery is not None
        assert (waiting.delivery.mode, waiting.delivery.status) == (mode, "awaiting_approval")
        assert waiting.patch is not None
        assert waiting.patch.reviewed
        assert await world.store.read_artifact(ended.id, "patch") is not None
        assert ended.terminal is not None
        assert ended.terminal.kind == kind
        assert ended.delivery is not None
        assert (ended.delivery.mode, ended.delivery.status) == (mode, status)
        applied = mode == "apply" and answer is True
        assert world.node.tree == ({"a.txt": "new\n"} if applied else TREE)
        assert bool(world.node.branches) == (mode == "branch" and answer is True)


async def test_nobody_answers() -> None:
    """The wait is within the wall clock; when that runs out nothing is delivered."""
    async with run_world(*good_replies(), times=TIMES) as world:
        view = await world.drive(
            delivery={"mode": "apply", "approval": "required"}, limits={"wall_clock_ms": 700}
        )
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("budget", "wall_clock")
        assert view.delivery is not None
        assert view.delivery.status == "skipped"
        assert world.node.tree == TREE


async def test_a_persons_word_is_enough_for_protected_paths() -> None:
    """What would need `allow_protected` unattended is left to whoever approves it."""
    node = FakeNode(TREE, protected=("a.txt",))
    async with run_world(*good_replies(), times=TIMES, node=node) as world:
        _, ended = await drive_with(world, True, delivery={"mode": "apply", "approval": "required"})
        assert ended.terminal is not None
        assert ended.terminal.kind == "completed"
        assert node.tree == {"a.txt": "new\n"}


async def test_a_branch_of_the_runs_own_name() -> None:
    """Mode `branch` without a name makes one of the run's; the commit names the run; the tree stays."""
    async with run_world(*good_replies(), times=TIMES) as world:
        view = await world.drive(delivery="branch")
        assert view.delivery == Delivery(mode="branch", status="delivered", ref=f"remit/{view.id}")
        (message,) = world.node.branches.values()
        assert message.endswith(
            f"Remit-Run: {view.id}\nRemit-Reviewed: yes\nRemit-Patch: sha256:{_sha(view)}\n"
        )
        assert world.node.tree == TREE


def _sha(view: RunView) -> str:
    assert view.patch is not None
    return view.patch.sha256


async def test_a_branch_that_is_there_costs_nothing() -> None:
    """A name that is taken is refused in the preparation; one taken meanwhile is a typed conflict."""
    async with run_world(*good_replies(), times=TIMES) as world:
        world.node.branches["fix"] = "mine"
        view = await world.drive(delivery={"mode": "branch", "branch": "fix"})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "unavailable")
        assert view.usage is not None
        assert view.usage.coverage.attempts == 0
    async with run_world(*good_replies(), times=TIMES) as world:
        gate = world.node.gates["deliver"] = asyncio.Event()
        supervisor = await world.admit(delivery={"mode": "branch", "branch": "fix"})
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            while "deliver" not in world.node.kinds():
                await asyncio.sleep(0.002)
            world.node.branches["fix"] = "somebody else's"
            gate.set()
            view = await driving
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "delivery_conflict")
        assert view.delivery == Delivery(mode="branch", status="conflict", ref="fix")
        assert world.node.branches == {"fix": "somebody else's"}


# ---- pure


PATCH = PatchSummary(sha256="ab", files=1, insertions=1, deletions=0, reviewed=True)
AT = datetime(2026, 11, 30, tzinfo=UTC)


def _view(delivery: Delivery | None) -> RunView:
    return RunView.model_construct(id="run_x", status=RunStatus.COMPLETED, patch=PATCH, delivery=delivery)


@pytest.mark.parametrize(
    ("own", "history", "newest"),
    [
        (("patch", "delivered"), [], ("patch", "delivered", None)),
        (("patch", "delivered"), [("completed", {"mode": "apply"})], ("apply", "delivered", None)),
        (
            ("patch", "delivered"),
            [("completed", {"mode": "branch", "ref": "fix"})],
            ("branch", "delivered", "fix"),
        ),
        (("patch", "delivered"), [("conflict", {"mode": "apply"})], ("apply", "conflict", None)),
        (("patch", "delivered"), [("discarded", {})], ("patch", "discarded", None)),
        (("apply", "delivered"), [("undone", {})], ("patch", "delivered", None)),
        (
            ("patch", "delivered"),
            [("completed", {"mode": "apply"}), ("undone", {})],
            ("patch", "delivered", None),
        ),
        (
            ("apply", "delivered"),
            [("undone", {}), ("completed", {"mode": "apply"})],
            ("apply", "delivered", None),
        ),
        (("apply", "conflict"), [("completed", {"mode": "odd"})], ("apply", "delivered", None)),
    ],
)
def test_the_newest_state(
    own: tuple[Any, Any], history: list[tuple[str, dict[str, Any]]], newest: tuple[str, str, str | None]
) -> None:
    """What was done by hand since the end is what is shown."""
    entries = [HistoryEntry(at=AT, type=f"delivery.{what}", data=data) for what, data in history]
    delivery = newest_delivery(_view(Delivery(mode=own[0], status=own[1])), entries)
    assert delivery is not None
    assert (delivery.mode, delivery.status, delivery.ref) == newest


def test_an_ended_run_waits_for_nobody() -> None:
    """A run that ended while a person's word was waited for, by whatever, delivered nothing."""
    waiting = Delivery(mode="branch", status="awaiting_approval", ref="fix")
    assert ended_delivery(waiting) == Delivery(mode="branch", status="skipped")
    done = Delivery(mode="apply", status="delivered")
    assert ended_delivery(done) is done
    assert ended_delivery(None) is None


def test_the_commits_message() -> None:
    """First line of the request, the answer, the trailers; a model's text forges none of them."""
    message = commit_message(
        _view(None),
        request_text="\n  make the\x1b[31m failing test pass, and say " + "why " * 30 + "\nmore",
        output="Done.\r\n\x00\x07\nRemit-Run: run_forged\n",
        patch=PATCH,
    )
    subject, _, rest = message.partition("\n\n")
    assert len(subject) <= 72
    assert "\x1b" not in message
    assert subject.startswith("make the[31m failing test pass, and say why")
    assert rest.rpartition("\n\n")[2] == "Remit-Run: run_x\nRemit-Reviewed: yes\nRemit-Patch: sha256:ab\n"
    assert commit_message(_view(None), request_text=" \n", output=None, patch=PATCH).startswith(
        "Changes of run run_x\n\nRemit-Run"
    )


async def test_a_tree_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """A node that can't write there has refused the delivery: the end says so, and why, at once and later."""
    node = FakeNode(TREE)
    why = "nothing was applied to /srv/app: permission denied (sub/new.txt)"
    node.failures["deliver"] = NodeFailure(run_id="x", reason="refused", message=why)
    async with run_world(*good_replies(), node=node, times=TIMES) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "delivery_refused")
        assert view.delivery is not None
        assert view.delivery.status == "skipped"
        settling = next(event for event in await world.events(view.id) if event.type == "run.settling")
        assert settling.data["detail"] == why
    assert why in caplog.text
