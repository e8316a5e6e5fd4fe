"""A patch is merged with a tree that has moved on only when a person asks, and only past the checks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from git_repository import git, make_repository, write
from remit.workspaces._delivery import DeliveryOrder
from remit.workspaces._merging import Merged
from service_kit import Node, node_of

LINES = "".join(f"line {number}\n" for number in range(1, 21))
FILES = {
    "app.py": "def add(a, b):\n    return a + b\n" + "".join(f"# {number}\n" for number in range(10)),
    "test_app.py": "import unittest\nfrom app import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
    "long.txt": LINES,
    "gone.txt": "to be removed\n",
    "data.bin": b"\0\1\2",
}


class Bench(Node):
    """A run that changed some files, and whose checkout is gone."""

    order: DeliveryOrder

    async def work(self, **edits: str) -> None:
        await self.open()
        for name, new in edits.items():
            path = name.replace("_", ".", 1)
            await self.tool("write_file", relative_path=path, content=new)
        snapshot = await self.snapshot()
        await self.cleanup()
        self.order = DeliveryOrder(
            run_id="run_1",
            root=self.root,
            content_hash=snapshot.content_hash,
            patch_sha256=snapshot.patch_sha256,
        )

    async def merge(self) -> Merged:
        return await self.service.merge("app", self.order)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    root = make_repository(tmp_path / "app", FILES)
    async with node_of(tmp_path, root) as node:
        yield Bench(node.service, root)


async def test_other_lines_are_merged_checked_and_undone(bench: Bench) -> None:
    """Both sides' lines are in the file, the checks ran with them; undo gives the user's own state back."""
    await bench.work(long_txt=LINES.replace("line 2\n", "line two\n"), new_txt="new\n")
    mine = LINES.replace("line 19\n", "line nineteen\n")
    write(bench.root, {"long.txt": mine, "mine.txt": "mine\n"})
    index = (bench.root / ".git/index").read_bytes()
    assert bench.service.deliveries.deliver(bench.order).status == "conflict"
    merged = await bench.merge()
    assert merged.outcome.status == "delivered"
    assert [(check.id, check.base_exit, check.exit, check.gate) for check in merged.checks] == [
        ("unittest", 0, 0, "pass")
    ]
    assert (bench.root / "long.txt").read_text() == mine.replace("line 2\n", "line two\n")
    assert (bench.root / "new.txt").read_text() == "new\n"
    assert (bench.root / ".git/index").read_bytes() == index
    (delivered,) = bench.service.deliveries.find_delivered("run_1")
    assert delivered != bench.order.content_hash, "what was merged isn't what was reviewed"
    assert bench.service.deliveries.undo("run_1", delivered).status == "undone"
    assert (bench.root / "long.txt").read_text() == mine
    assert not (bench.root / "new.txt").exists()
    assert (bench.root / "mine.txt").read_text() == "mine\n"


async def test_the_same_lines_are_a_conflict(bench: Bench) -> None:
    """Where both changed the same lines nothing at all is applied, and no marks are left in any file."""
    await bench.work(long_txt=LINES.replace("line 2\n", "line two\n"), new_txt="new\n")
    write(bench.root, {"long.txt": LINES.replace("line 2\n", "line 2, mine\n")})
    merged = await bench.merge()
    assert (merged.outcome.status, merged.outcome.paths) == ("conflict", ("long.txt",))
    assert not (bench.root / "new.txt").exists()
    assert "<<<<" not in (bench.root / "long.txt").read_text()


async def test_what_cannot_be_merged_is_a_conflict(bench: Bench) -> None:
    """Bytes that are no text, a file that became a folder, one that is gone: named, and nothing is done."""
    await bench.work(data_bin="\0\2", gone_txt="changed\n", long_txt="short\n")
    write(bench.root, {"data.bin": b"\0\3"})
    (bench.root / "gone.txt").unlink()
    (bench.root / "long.txt").unlink()
    (bench.root / "long.txt").mkdir()
    merged = await bench.merge()
    assert (merged.outcome.status, merged.outcome.paths) == ("conflict", ("data.bin", "gone.txt", "long.txt"))


async def test_a_merge_that_breaks_a_check_is_not_applied(bench: Bench) -> None:
    """Each side alone passes, the two together don't: the checks say so, and nothing lands."""
    await bench.work(app_py=FILES["app.py"].replace("# 9\n", "del globals()['NAME']\n"))  # type: ignore[union-attr] - this file is text
    write(bench.root, {"test_app.py": FILES["test_app.py"] + "\n\nadd.__module__\n"})  # type: ignore[operator] - as above
    write(bench.root, {"app.py": "NAME = 1\n" + FILES["app.py"]})  # type: ignore[operator] - as above
    write(bench.root, {"test_app.py": "from app import NAME\n" + FILES["test_app.py"]})  # type: ignore[operator] - as above
    before = (bench.root / "app.py").read_text()
    merged = await bench.merge()
    assert merged.outcome.status == "refused"
    assert [check.gate for check in merged.checks] == ["worse"]
    assert "NAME" in merged.broken[0]
    assert (bench.root / "app.py").read_text() == before
    assert bench.service.deliveries.find_delivered("run_1") == ()


async def test_a_tree_that_holds_it_already(bench: Bench) -> None:
    """A path that holds the result already is left alone; where all do there is nothing to apply."""
    await bench.work(new_txt="new\n")
    write(bench.root, {"new.txt": "new\n"})
    git(bench.root, "add", "-A")
    merged = await bench.merge()
    assert merged.outcome.status == "empty"
