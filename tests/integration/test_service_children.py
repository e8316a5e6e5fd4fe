"""Child runs on a real node: a copy of the parent's checkout, and the way of its changes back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from git_repository import git, look, make_repository
from remit.contract import (
    ChildResult,
    CleanedUp,
    CleanupRequest,
    NodeFailure,
    NodeRequest,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    Snapshot,
    SnapshotRequest,
    ToolRequest,
    ToolResponse,
)
from remit.primitives import SystemClock, SystemIds
from remit.workspaces._service import NodeService
from remit.workspaces._settings import WorkspaceSettings

FILES: dict[str, str | bytes] = {
    "app.py": "print('one')\n",
    "old/deep/gone.txt": "to be deleted\n",
    "kept.txt": "kept\n",
    "tool.sh": "#!/bin/sh\n",
    ".gitignore": "cache/\n",
}
_Answer = TypeVar("_Answer")


class Node:
    """A node with one workspace."""

    def __init__(self, service: NodeService) -> None:
        self.service = service
        self.calls = 0

    async def ask(self, request: NodeRequest, shape: type[_Answer]) -> _Answer:
        answer = await self.service.handle(request)
        assert isinstance(answer, shape), answer
        return answer

    async def open(self, run_id: str, *, parent: str | None = None) -> Prepared:
        prepared = await self.ask(PrepareRequest(run_id=run_id, workspace_ref="app", parent=parent), Prepared)
        request = OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base, parent=parent)
        await self.ask(request, Opened)
        return prepared

    async def shell(self, run_id: str, command: str) -> ToolResponse:
        self.calls += 1
        request = self.request(run_id, f"c{self.calls}", "run_shell", json.dumps({"command": command}))
        return await self.ask(request, ToolResponse)

    def request(
        self, run_id: str, call_id: str, name: str, arguments: str, child: ChildResult | None = None
    ) -> ToolRequest:
        return ToolRequest(
            run_id=run_id,
            stage_id="work-1",
            tool_call_id=call_id,
            name=name,
            arguments=arguments,
            timeout_ms=60_000,
            remaining_ms=60_000,
            child=child,
        )

    async def take_over(self, run_id: str, child: ChildResult, call_id: str = "d1") -> ToolResponse:
        request = self.request(run_id, call_id, "delegate", '{"prompt": "x"}', child)
        return await self.ask(request, ToolResponse)

    async def snapshot(self, run_id: str) -> Snapshot:
        return await self.ask(SnapshotRequest(run_id=run_id, end_leftovers=True), Snapshot)

    async def close(self, run_id: str) -> None:
        await self.ask(CleanupRequest(run_id=run_id), CleanedUp)


@asynccontextmanager
async def node_of(folder: Path, **settings: Any) -> AsyncGenerator[Node]:
    root = make_repository(folder / "repo", FILES)
    (folder / "home").mkdir()
    workspace = {"ref": "app", "root": root, "shell": True, "checks": [], **settings}
    service = await NodeService.start(
        [WorkspaceSettings.model_validate(workspace)],
        data=folder / "data",
        clock=SystemClock(),
        ids=SystemIds(),
        environment={"PATH": "/usr/bin:/bin", "HOME": str(folder / "home")},
    )
    try:
        yield Node(service)
    finally:
        await service.aclose()


CHANGES = (
    "printf 'two\\n' > app.py; mkdir -p made/deep; printf 'made\\n' > made/deep/file; rm -r old; "
    "chmod +x tool.sh; ln -s app.py link; printf '\\0\\1' > binary; rm kept.txt; mkdir kept.txt; "
    "echo inner > kept.txt/inner"
)


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_a_child_starts_from_what_its_parent_holds(tmp_path: Path, isolation: str) -> None:
    """S48: a child sees its parent's changes, tells only its own; neither sees what the other does later."""
    async with node_of(tmp_path, isolation=isolation) as node:
        before = look(tmp_path / "repo", skip=())
        await node.open("parent")
        await node.shell("parent", "echo by-parent > app.py; rm -r old; mkdir -p cache; echo warm > cache/it")
        prepared = await node.open("child", parent="parent")
        assert prepared.isolation == isolation
        assert prepared.checks == ()
        seen = await node.shell("child", "cat app.py cache/it; ls; git status --porcelain | head -3")
        assert seen.content.startswith("by-parent\nwarm\n")
        assert "old" not in seen.content.split()
        assert (await node.snapshot("child")).files == 0
        await node.shell("child", "echo by-child > app.py; echo new > new.txt")
        snapshot = await node.snapshot("child")
        assert [(path.path, path.change) for path in snapshot.paths] == [
            ("app.py", "modified"),
            ("new.txt", "added"),
        ]
        assert "-by-parent\n+by-child" in snapshot.patch
        assert (await node.shell("parent", "cat app.py; ls new.txt")).content.startswith("by-parent\n")
        assert look(tmp_path / "repo", skip=()) == before
        await node.close("child")
        await node.close("parent")
        assert node.service.opened_count == node.service.cleaned_up_count == 2


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_what_passed_lands_in_the_parents_checkout(tmp_path: Path, isolation: str) -> None:
    """S37, S48: every kind of change is taken over, byte for byte; the parent's own patch then holds both."""
    async with node_of(tmp_path, isolation=isolation) as node:
        await node.open("parent")
        await node.shell("parent", "echo mine > mine.txt")
        await node.open("child", parent="parent")
        await node.shell("child", CHANGES)
        snapshot = await node.snapshot("child")
        await node.close("child")
        child = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        done = await node.take_over("parent", child)
        assert done.status == "success", done.content
        assert done.effect == "write"
        assert set(done.changed) == {path.path for path in snapshot.paths}
        look_at = "cat app.py made/deep/file kept.txt/inner; readlink link; test -x tool.sh && echo x; ls -A"
        seen = (await node.shell("parent", look_at)).content
        assert seen.startswith("two\nmade\ninner\napp.py\nx\n")
        assert "old" not in seen.split()
        assert ".remit-write" not in seen
        whole = await node.snapshot("parent")
        assert {path.path for path in whole.paths} == set(done.changed) | {"mine.txt"}
        again = await node.take_over("parent", child)
        assert (again.status, again.receipt_id) == ("success", done.receipt_id)


async def test_a_conflict_changes_nothing(tmp_path: Path) -> None:
    """What isn't as the child found it is a typed conflict, and nothing of the child's is there."""
    async with node_of(tmp_path) as node:
        await node.open("parent")
        await node.open("child", parent="parent")
        await node.shell("child", "echo child > app.py; echo new > new.txt")
        snapshot = await node.snapshot("child")
        await node.shell("parent", "echo meanwhile > app.py")
        child = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        refused = await node.take_over("parent", child)
        assert (refused.status, refused.changed) == ("conflict", ())
        assert "app.py" in refused.content
        seen = await node.shell("parent", "cat app.py; ls -A")
        assert seen.content.startswith("meanwhile\n")
        assert "new.txt" not in seen.content


async def test_a_folder_in_the_way_undoes_all_of_it(tmp_path: Path) -> None:
    """A change that can't be put in place because of files that git ignores leaves everything as it was."""
    async with node_of(tmp_path) as node:
        await node.open("parent")
        await node.open("child", parent="parent")
        await node.shell(
            "child", "rm -r old kept.txt; echo file > cache-or-file; echo x > old; echo two > app.py"
        )
        snapshot = await node.snapshot("child")
        await node.shell("parent", "mkdir -p old/cache; echo warm > old/cache/it; mkdir cache-or-file")
        child = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        refused = await node.take_over("parent", child)
        assert refused.status != "success"
        seen = await node.shell(
            "parent", "cat app.py kept.txt old/deep/gone.txt old/cache/it; ls -A; git status --porcelain"
        )
        assert seen.content.startswith("print('one')\nkept\nto be deleted\nwarm\n")
        assert ".remit-write" not in seen.content


async def test_a_child_of_a_child(tmp_path: Path) -> None:
    """What a nested child changed goes up one step at a time, and each tells only what is its own."""
    async with node_of(tmp_path) as node:
        await node.open("parent")
        await node.shell("parent", "echo p > p.txt")
        await node.open("child", parent="parent")
        await node.shell("child", "echo c > c.txt")
        await node.open("nested", parent="child")
        await node.shell("nested", "echo n > n.txt; echo changed > c.txt")
        inner = await node.snapshot("nested")
        assert [path.path for path in inner.paths] == ["c.txt", "n.txt"]
        await node.take_over("child", ChildResult(run_id="nested", content_hash=inner.content_hash))
        outer = await node.snapshot("child")
        assert [path.path for path in outer.paths] == ["c.txt", "n.txt"]
        await node.take_over("parent", ChildResult(run_id="child", content_hash=outer.content_hash))
        seen = await node.shell("parent", "cat p.txt c.txt n.txt")
        assert seen.content.startswith("p\nchanged\nn\n")


async def test_a_reverted_file_goes_back(tmp_path: Path) -> None:
    """A child that takes its parent's change back, to the base's bytes, has changed something."""
    async with node_of(tmp_path) as node:
        await node.open("parent")
        await node.shell("parent", "echo broken > app.py; echo extra > extra.txt")
        await node.open("child", parent="parent")
        await node.shell(
            "child", "git checkout -q app.py 2>/dev/null || echo \"print('one')\" > app.py; rm extra.txt"
        )
        snapshot = await node.snapshot("child")
        assert [(path.path, path.change) for path in snapshot.paths] == [
            ("app.py", "modified"),
            ("extra.txt", "deleted"),
        ]
        child = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        assert (await node.take_over("parent", child)).status == "success"
        assert (await node.snapshot("parent")).files == 0


async def test_only_a_child_of_its_own(tmp_path: Path) -> None:
    """What another run's child changed, or what wasn't kept, isn't taken over; nor without a child at all."""
    async with node_of(tmp_path) as node:
        for name in ("one", "two"):
            await node.open(name)
        await node.open("child", parent="one")
        await node.shell("child", "echo x > x.txt")
        snapshot = await node.snapshot("child")
        mine = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        request = node.request("two", "d1", "delegate", "{}", mine)
        assert (await node.ask(request, NodeFailure)).reason == "refused"
        other = mine.model_copy(update={"content_hash": "0" * 64})
        request = node.request("one", "d2", "delegate", "{}", other)
        assert (await node.ask(request, NodeFailure)).reason == "lost"
        refused = await node.ask(node.request("one", "d3", "delegate", '{"prompt": "x"}'), ToolResponse)
        assert refused.status == "denied"
        assert "x.txt" not in (await node.shell("one", "ls")).content


async def test_a_parent_without_a_checkout_has_no_children(tmp_path: Path) -> None:
    """A child starts from an open checkout of its parent's, or not at all."""
    async with node_of(tmp_path) as node:
        request = PrepareRequest(run_id="child", workspace_ref="app", parent="nobody")
        assert (await node.ask(request, NodeFailure)).reason == "lost"
        await node.ask(PrepareRequest(run_id="parent", workspace_ref="app"), Prepared)
        request = PrepareRequest(run_id="child", workspace_ref="app", parent="parent")
        assert (await node.ask(request, NodeFailure)).reason == "lost"
        assert node.service.opened_count == 0
        assert not (tmp_path / "data/checkouts").exists()


async def test_the_users_tree_may_move_meanwhile(tmp_path: Path) -> None:
    """A child starts from its parent's base, not from what the user's tree has become."""
    async with node_of(tmp_path) as node:
        first = await node.open("parent")
        git(tmp_path / "repo", "mv", "kept.txt", "moved.txt")
        git(tmp_path / "repo", "commit", "-qm", "Move")
        child = await node.open("child", parent="parent")
        assert (child.base, child.brief_sha256) == (first.base, first.brief_sha256)


async def test_a_link_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A folder that became a link isn't followed: nothing is written where it points, and all is undone."""
    async with node_of(tmp_path) as node:
        await node.open("parent")
        await node.open("child", parent="parent")
        await node.shell("child", "mkdir new; echo x > new/file; echo two > app.py; rm old/deep/gone.txt")
        snapshot = await node.snapshot("child")
        child = ChildResult(run_id="child", content_hash=snapshot.content_hash)
        await node.shell("parent", "mkdir elsewhere; ln -s elsewhere new")
        refused = await node.take_over("parent", child)
        assert refused.status != "success"
        seen = await node.shell("parent", "ls elsewhere | wc -l; cat app.py old/deep/gone.txt; ls -A")
        assert seen.content.startswith("0\nprint('one')\nto be deleted\n")
        assert ".remit-write" not in seen.content
