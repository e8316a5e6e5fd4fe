"""Checkouts that are opened by the first who looks into them, since one like them was open before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncGenerator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from git_repository import make_repository
from keeper_places import place, run
from remit.contract import (
    Cancelled,
    CancelRequest,
    CleanedUp,
    CleanupRequest,
    NodeFailure,
    Opened,
    OpenRequest,
    Snapshot,
    SnapshotRequest,
    ToolResponse,
)
from remit.workspaces import KeeperLost, Limits, WorkspaceRefused, _asleep, _keeper
from remit.workspaces._checkout import Checkout
from remit.workspaces._shelf import Toolchains
from remit.workspaces.keeper._storage import Storage
from service_kit import FILES, Node, node_of, until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path.resolve() / "app", FILES)


@pytest.fixture
async def node(tmp_path: Path, root: Path) -> AsyncGenerator[Node]:
    """A node on which one run has looked into its checkout, and which has another's asleep: `run_2`."""
    async with node_of(tmp_path, root, isolation="overlay") as node:
        first = await node.open("run_1")
        second = await node.open("run_2")
        fields = {"run_id", "checkout_id"}
        assert second.model_dump(exclude=fields) == first.model_dump(exclude=fields)
        assert not checkout_of(node).is_awake
        yield node


def checkout_of(node: Node, run_id: str = "run_2") -> Checkout:
    return node.service._parts.runs[run_id].get_checkout()


async def test_the_first_look_opens_it(node: Node) -> None:
    """A checkout that slept is like any other: it has the tree, its own changes, and nobody else's."""
    await node.tool("write_file", "run_1", relative_path="a.txt", content="one\n")
    shown = await node.tool("run_shell", "run_2", command="ls; git status --short; echo two > a.txt")
    assert "app.py" in shown.content
    assert "a.txt" not in shown.content
    assert checkout_of(node).is_awake
    assert checkout_of(node).pid > 0
    snapshot = await node.snapshot("run_2", end_leftovers=True)
    assert "+two" in snapshot.patch
    assert (await node.cleanup("run_2", keep=False)).abandoned == ()


async def test_what_nobody_looked_into_costs_no_process(node: Node, tmp_path: Path) -> None:
    """Its whole way without a keeper: an empty patch, the base's content, and nothing left on disk."""
    untouched = await node.snapshot("run_1", end_leftovers=True)
    seen = await node.snapshot("run_2", end_leftovers=True)
    assert (seen.patch, seen.files, seen.content_hash) == ("", 0, untouched.content_hash)
    assert seen.leftovers == ()
    assert await node.service.running_calls() == ()
    assert not checkout_of(node).is_awake
    answer = await node.cleanup("run_2", keep=False)
    assert (answer.kept, answer.abandoned) == (False, ())
    assert not (tmp_path / "data/checkouts/run_2").exists()
    assert node.service.opened_count - node.service.cleaned_up_count == 1


async def test_many_looks_at_once_open_it_once(node: Node) -> None:
    """Of calls beside each other the first opens it, and the others wait for that."""
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(node.tool("read_file", "run_2", relative_path="app.py")) for _ in range(8)]
    assert {call.result().status for call in calls} == {"success"}
    assert (await node.cleanup("run_2", keep=False)).abandoned == ()


async def test_it_is_kept_like_any_other(node: Node, tmp_path: Path, root: Path) -> None:
    """What is to be kept is there to go on with, also where nobody had looked into it."""
    answer = await node.cleanup("run_2", keep=True)
    assert answer.kept
    assert answer.folder == str(tmp_path / "data/checkouts/run_2")
    await node.prepare("run_3", continues="run_2")


async def test_a_killed_process_leaves_what_it_would_have_left(tmp_path: Path, root: Path) -> None:
    """R57: the next process finds an unchanged checkout, and keeps or removes it."""
    async with node_of(tmp_path, root, isolation="overlay") as node:
        await node.open("run_1")
        expected = await node.snapshot("run_1")
        await node.open("run_2")
        keeper = await node.service.get_keeper()
        os.kill(keeper.pid, signal.SIGKILL)
        asleep = checkout_of(node)._asleep
        assert asleep is not None
        asleep.end()  # as the kernel does at its process's end
        async with node_of(tmp_path, root) as later:
            seen = await later.ask(SnapshotRequest(run_id="run_2", generation=2), Snapshot)
            assert (seen.patch, seen.content_hash) == ("", expected.content_hash)
            cleanup = CleanupRequest(run_id="run_2", generation=2, keep=False)
            assert not (await later.ask(cleanup, CleanedUp)).kept
            assert not (tmp_path / "data/checkouts/run_2").exists()


async def test_a_living_process_keeps_others_out(node: Node, tmp_path: Path, root: Path) -> None:
    """R57: what another process has, asleep or not, is neither read nor removed."""
    async with node_of(tmp_path, root) as other:
        for asked in (SnapshotRequest(run_id="run_2"), CleanupRequest(run_id="run_2", keep=False)):
            answer = await other.ask(asked, NodeFailure)
            assert answer.reason == "unavailable"
            assert "open in another process" in answer.message
    assert (await node.tool("list_files", "run_2")).status == "success"


async def test_a_keeper_that_died_meanwhile_is_said(node: Node) -> None:
    """R57: a checkout whose node's processes died is lost, whether anybody had looked into it or not."""
    keeper = await node.service.get_keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    await until(lambda: not keeper.alive)
    answer = await node.service.handle(node.tool_request("list_files", "run_2"))
    assert isinstance(answer, NodeFailure)
    assert answer.reason == "lost"


async def test_a_place_that_went_bad_is_said(node: Node, tmp_path: Path) -> None:
    """R44: what can't be opened when it is looked into fails the call that looked, and all else goes on."""
    folder = tmp_path / "data/checkouts/run_2"
    Storage(folder).upper.rmdir()
    Storage(folder).upper.write_text("in the way")
    answer = await node.service.handle(node.tool_request("list_files", "run_2"))
    assert isinstance(answer, NodeFailure)
    assert (await node.tool("list_files", "run_1")).status == "success"
    assert not (await node.cleanup("run_2", keep=False)).kept
    assert not folder.exists()


async def test_a_stop_before_the_first_look_leaves_nothing(node: Node) -> None:
    """S63: a call that is stopped while it opens the checkout has begun nothing; the next one can."""
    call = asyncio.get_running_loop().create_task(node.tool("run_shell", "run_2", command="sleep 7031"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await node.service.running_calls() == ()
    assert (await node.tool("list_files", "run_2")).status == "success"


async def test_a_call_stopped_while_it_opens_begins_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: a stop that comes before the checkout is open lets no command begin after it."""
    keeper = await node.service.get_keeper()
    begin, opening = keeper._begin, asyncio.Event()

    async def begin_slowly(*args: Any) -> Any:
        opening.set()
        await asyncio.sleep(0.02)
        return await begin(*args)

    monkeypatch.setattr(keeper, "_begin", begin_slowly)
    order = node.tool_request("run_shell", "run_2", "c", command="echo > begun; sleep 7032")
    call = asyncio.get_running_loop().create_task(node.service.handle(order))
    await opening.wait()
    cancel = CancelRequest(run_id="run_2", stage_id="work-1", tool_call_id="c", grace_ms=0)
    (item,) = (await node.ask(cancel, Cancelled)).items
    assert (item.how, item.pids) == ("closed", ())
    answer = await call
    assert isinstance(answer, ToolResponse)
    assert answer.status == "cancelled"
    assert not checkout_of(node).is_awake
    assert "begun" not in (await node.tool("list_files", "run_2")).content


async def test_a_look_cut_off_anywhere_leaves_it_asleep_and_held(tmp_path: Path) -> None:
    """R57: whenever a look is cut off, nobody else can have the place, and the next look finds it free."""
    async with place(tmp_path, isolation="overlay") as here:
        await (await here.open("first")).close()
        for number in range(40):
            late = await here.keeper.open(here.request(f"late{number}"), may_sleep=True)
            look = asyncio.get_running_loop().create_task(late.wake())
            await asyncio.sleep(number * 0.0003)
            look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await look
            with pytest.raises(BlockingIOError):
                Storage(late.storage).lock()
            assert (await run(late, "cat tracked.txt")).text == "original\n"
            assert await late.close() == ()


async def test_what_a_killed_keeper_leaves_is_removed(node: Node, tmp_path: Path) -> None:
    """R57: also the kernel's own folder of an overlay, which a plain user may not even look into."""
    await node.tool("run_shell", "run_2", command="mkdir -p a/b && chmod 0 a/b a")
    keeper = checkout_of(node).pid
    os.kill(keeper, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{keeper}").exists())
    assert not (await node.cleanup("run_2", keep=False)).kept
    assert [left.name for left in (tmp_path / "data/checkouts").iterdir()] == ["run_1"]


async def test_a_look_cancelled_twice_leaves_nothing_behind(node: Node, tmp_path: Path) -> None:
    """R57: whoever is impatient leaves no keeper that makes its folder anew once the run is gone."""
    folder = tmp_path / "data/checkouts"
    await node.cleanup("run_2", keep=False)
    for number in range(60):
        run_id = f"run_x{number}"
        await node.open(run_id)
        look = asyncio.get_running_loop().create_task(node.tool("list_files", run_id))
        await asyncio.sleep(number % 30 * 0.0005)
        for _ in range(3):
            look.cancel()
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await look
        await node.cleanup(run_id, keep=False)
        assert [left.name for left in folder.iterdir()] == ["run_1"], number
    await asyncio.sleep(0.5)
    assert [left.name for left in folder.iterdir()] == ["run_1"]


async def test_what_changed_meanwhile_is_told_of_the_next(tmp_path: Path) -> None:
    """A remembered opening is forgotten once one like it came out with other notes."""
    async with place(tmp_path, isolation="overlay") as here:
        await (await here.open("first")).close()
        kind, opened = here.keeper._opened[0]
        here.keeper._opened[0] = (kind, {**opened, "notes": ["a mount that is gone by now"]})
        late = await here.keeper.open(here.request("late"), may_sleep=True)
        assert (await run(late, "true")).exit_code == 0
        again = await here.keeper.open(here.request("again"), may_sleep=True)
        assert (again.is_awake, again.notes) == (True, tuple(opened["notes"]))
        for checkout in (late, again):
            assert await checkout.close() == ()


async def test_a_place_that_nobody_waits_for_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57: an opening that is cut off while its place is taken leaves neither the folder nor a lock."""
    folder, taking, go = tmp_path / "checkouts/late", threading.Event(), threading.Event()
    take, places = _asleep._take, list[FileIO]()

    def take_slowly(wanted: Path) -> FileIO:
        taking.set()
        go.wait(30)
        places.append(take(wanted))
        return places[0]

    async def never() -> Any:
        raise AssertionError

    monkeypatch.setattr(_asleep, "_take", take_slowly)
    lying = asyncio.get_running_loop().create_task(_asleep.Asleep.lie_down(folder, never))
    await asyncio.to_thread(taking.wait, 30)
    lying.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await lying
    assert not folder.exists()
    assert places[0].closed


async def test_what_cannot_be_woken_is_not_kept(node: Node, tmp_path: Path) -> None:
    """R57: where nothing can be made of it any more, nothing is said to be kept."""
    keeper = await node.service.get_keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    await until(lambda: not keeper.alive)
    answer = await node.cleanup("run_2", keep=True)
    assert (answer.kept, answer.abandoned) == (False, ())
    assert not (tmp_path / "data/checkouts/run_2").exists()


async def test_one_that_wakes_up_while_it_is_closed_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: whoever closes it waits for its keeper, and leaves none."""
    async with place(tmp_path, isolation="overlay") as here:
        await (await here.open("first")).close()
        begin, opening = here.keeper._begin, asyncio.Event()

        async def begin_slowly(*args: Any) -> Any:
            opening.set()
            await asyncio.sleep(0.02)
            return await begin(*args)

        monkeypatch.setattr(here.keeper, "_begin", begin_slowly)
        late = await here.keeper.open(here.request("late"), may_sleep=True)
        look = asyncio.get_running_loop().create_task(late.wake())
        await opening.wait()
        assert await late.close() == ()
        assert (await look).is_closed
        assert not late.storage.exists()


async def test_what_cannot_be_opened_any_more_is_not_said_to_be_open(tmp_path: Path) -> None:
    """R44: once one couldn't be opened, the next one like it is opened at once, or refused at once."""
    async with place(tmp_path, isolation="overlay") as here:
        await (await here.open("first")).close()
        late = await here.keeper.open(here.request("late"), may_sleep=True)
        here.root.rename(here.root.with_name("moved"))
        with pytest.raises(KeeperLost):
            await late.wake()
        with pytest.raises((KeeperLost, WorkspaceRefused)):
            await here.keeper.open(here.request("again"), may_sleep=True)
        assert await late.close() == ()


async def test_the_first_at_once_are_forgotten_together(tmp_path: Path) -> None:
    """Several that were the first of their kind leave nothing behind that says otherwise later."""
    async with place(tmp_path, isolation="overlay") as here:
        async with asyncio.TaskGroup() as group:
            firsts = [group.create_task(here.open(f"first{number}")) for number in range(3)]
        assert len(here.keeper._opened) == 1
        for first in firsts:
            assert await first.result().close() == ()


async def begin(node: Node, run_id: str, **start: Any) -> Checkout:
    """Prepare and open a run that goes on from another one."""
    prepared = await node.prepare(run_id, **start)
    asked = OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base, **start)
    await node.ask(asked, Opened)
    return checkout_of(node, run_id)


async def test_what_holds_something_from_the_start_does_not_sleep(node: Node) -> None:
    """R58: a continued run and a child are seen with all that they start from, before anybody looks in."""
    await node.tool("write_file", "run_1", relative_path="a.txt", content="one\n")
    child = await begin(node, "run_3", parent="run_1")
    await node.cleanup("run_1", keep=True)
    continued = await begin(node, "run_4", continues="run_1")
    assert (child.is_awake, continued.is_awake) == (True, True)
    assert "+one" in (await node.snapshot("run_4")).patch
    assert "one" in (await node.tool("read_file", "run_3", relative_path="a.txt")).content


async def test_a_child_of_one_that_sleeps_starts_from_the_base(node: Node) -> None:
    """R58: what nobody has looked into is the base, for a child, too."""
    child = await begin(node, "run_3", parent="run_2")
    assert child.is_awake
    assert checkout_of(node).is_awake, "what is copied is open, as any parent's checkout is"
    assert (await node.snapshot("run_3")).patch == ""
    assert "app.py" in (await node.tool("list_files", "run_3")).content


async def test_one_that_was_opened_before_a_crash_does_not_sleep(tmp_path: Path, root: Path) -> None:
    """R57: what it held then is seen at once, also where others like it were opened since."""
    async with node_of(tmp_path, root, isolation="overlay") as node:
        await node.open("run_1")
        await node.tool("write_file", "run_1", relative_path="a.txt", content="one\n")
        keeper = await node.service.get_keeper()
        os.kill(keeper.pid, signal.SIGKILL)
        async with node_of(tmp_path, root, isolation="overlay") as later:
            await later.open("run_2")
            await later.open("run_1")
            assert checkout_of(later, "run_1").is_awake
            assert "+one" in (await later.snapshot("run_1")).patch


async def test_a_copy_is_made_at_once(tmp_path: Path, root: Path) -> None:
    """Only an overlay has nothing of its own before somebody looks into it."""
    async with node_of(tmp_path, root, isolation="copy") as node:
        await node.open("run_1")
        await node.open("run_2")
        assert checkout_of(node).is_awake


DIFFERENT: dict[str, dict[str, Any]] = {
    "environment": {"environment": {"LANG": "C"}},
    "sandbox": {"sandbox": "bubblewrap"},
    "folder": {"carry": (".venv",)},
    "limits": {"limits": Limits(scratch_bytes=2**20)},
    "toolchains": {"toolchains": Toolchains(path=("/opt/bin",))},
    "unconfined": {"allow_unconfined": True},
    "read only": {"read_only": ("folder",)},
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_only_what_is_just_alike_sleeps(tmp_path: Path, name: str) -> None:
    """How one opened tells of another only where nothing that decides it differs."""
    async with place(tmp_path, isolation="overlay") as here:
        first = await here.open("first")
        other = await here.keeper.open(here.request("other", **DIFFERENT[name]), may_sleep=True)
        alike = await here.keeper.open(here.request("alike", generation=7), may_sleep=True)
        assert (other.is_awake, alike.is_awake) == (True, False)
        for checkout in (first, other, alike):
            assert await checkout.close() == ()


async def test_a_git_folder_counts_and_its_place_does_not(tmp_path: Path) -> None:
    """Each has a git folder at a place of its own; whether it has one decides how it opens."""
    async with place(tmp_path) as here:
        one, other = (
            _keeper._kind_of(here.request(name, git_dir=tmp_path / name)) for name in ("one", "other")
        )
        assert one == other
        assert one != _keeper._kind_of(here.request("one"))


async def test_one_that_opens_otherwise_is_refused(tmp_path: Path) -> None:
    """What was told of it stays true: it isn't opened in another way than was said."""
    async with place(tmp_path, isolation="overlay") as here:
        await (await here.open("first")).close()
        kind, opened = here.keeper._opened[0]
        here.keeper._opened[0] = (kind, {**opened, "isolation": "copy"})
        late = await here.keeper.open(here.request("late"), may_sleep=True)
        with pytest.raises(KeeperLost, match="opens otherwise") as refused:
            await run(late, "true")
        assert refused.value.reason == "unavailable"
        assert late._asleep is not None
        assert not late._asleep._place.closed, "its keeper has gone, and the place is held again"
        assert await late.close() == ()
