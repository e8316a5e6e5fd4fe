"""Somebody saves while a delivery or an undo is at work: at no moment is what they saved lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from delivery_bench import Killed, make_order
from remit.errors import NodeError
from remit.workspaces._delivery import Deliveries
from tree_model import Tree

BASE: Tree = {
    "edit.txt": ("100644", b"one\n"),
    "drop.txt": ("100644", b"drop\n"),
    "link": ("120000", b"edit.txt"),
    "old": ("100644", b"a file that becomes a folder\n"),
}
RESULT: Tree = {
    "edit.txt": ("100644", b"one\ntwo\n"),
    "link": ("120000", b"drop.txt"),
    "new/made.txt": ("100644", b"new\n"),
    "old/inner": ("100644", b"inner\n"),
}
MINE = b"saved by somebody\n"


def save(path: Path) -> None:
    """As most editors do: the new file takes the old one's place."""
    beside = path.parent / "beside"
    beside.write_bytes(MINE)
    beside.rename(path)


def write_over(path: Path) -> None:
    """As the others do: into the file itself. A link is replaced."""
    if path.is_symlink() or not path.exists():
        save(path)
        return
    with path.open("r+b") as file:
        file.write(MINE)
        file.truncate()


class Somebody:
    """Does something to a path right before one step of a delivery."""

    def __init__(self, at: int, root: Path, path: str, deed: Callable[[Path], None], *, dies: bool) -> None:
        self.at, self.path, self.deed, self.dies = at, root / path, deed, dies
        self.steps: list[str] = []
        self.done = False

    def __call__(self, step: str) -> None:
        self.steps.append(step)
        if len(self.steps) - 1 == self.at:
            with suppress(FileNotFoundError, NotADirectoryError):  # its folder isn't there at this moment
                self.deed(self.path)
                self.done = True
            if self.dies:
                raise Killed


def attempts(folder: Path, path: str, deed: Callable[[Path], None], *, dies: bool) -> Iterator[Somebody]:
    """A delivery for each step that has to do with the path, disturbed before it, and then put right."""
    quiet = Somebody(-1, folder, path, deed, dies=dies)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        Deliveries(Path(name) / "data", fault=quiet).deliver(make_order(Path(name), BASE, RESULT))
    for at, step in enumerate(quiet.steps):
        if " " in step and path.partition("/")[0] not in step:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as name:
            order = make_order(Path(name), BASE, RESULT)
            somebody = Somebody(at, order.root, path, deed, dies=dies)
            with suppress(NodeError, Killed):
                Deliveries(Path(name) / "data", fault=somebody).deliver(order)
            Deliveries(Path(name) / "data").recover()
            yield somebody
            left = [entry.name for entry in order.root.rglob(".remit-*")]
            assert left == [], step


@pytest.mark.parametrize("path", ["edit.txt", "drop.txt", "link", "new/made.txt", "old"])
@pytest.mark.parametrize("deed", [save, write_over])
@pytest.mark.parametrize("dies", [False, True])
def test_what_is_saved_at_any_moment_stays(
    tmp_path: Path, path: str, deed: Callable[[Path], None], dies: bool
) -> None:
    """R34: between a look and the change that follows it, too; and where the process dies right then."""
    count = 0
    for somebody in attempts(tmp_path, path, deed, dies=dies):
        if somebody.done:
            assert somebody.path.read_bytes() == MINE, somebody.steps[somebody.at]
            count += 1
    assert count > 3


@pytest.mark.parametrize("path", ["edit.txt", "drop.txt"])
def test_what_is_deleted_or_made_private_at_any_moment_stays_so(tmp_path: Path, path: str) -> None:
    """R34: a deleted file doesn't come back by a delivery that says it did nothing; a mode isn't widened."""
    for somebody in attempts(tmp_path, path, Path.unlink, dies=False):
        stays = somebody.steps[somebody.at].startswith(
            ("stage", "keep", "remove", "take", "replace", "place")
        )
        if somebody.done and stays:
            assert not somebody.path.exists(), somebody.steps[somebody.at]
    for somebody in attempts(tmp_path, path, lambda path: path.chmod(0o600), dies=False):
        if somebody.done and somebody.path.exists():
            assert somebody.path.stat().st_mode & 0o777 == 0o600, somebody.steps[somebody.at]


def test_what_is_written_into_the_old_file_later_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R34: whoever had opened a file before it was replaced writes into the old one: kept, and said."""
    order = make_order(tmp_path, BASE, RESULT)
    with (order.root / "edit.txt").open("ab", buffering=0) as opened:

        def fault(step: str) -> None:
            if step == "receipt":
                opened.write(MINE)

        assert Deliveries(tmp_path / "data", fault=fault).deliver(order).status == "delivered"
    assert (order.root / "edit.txt").read_bytes() == b"one\ntwo\n"
    (kept,) = order.root.glob(".remit-*")
    assert kept.read_bytes() == b"one\n" + MINE
    assert f"somebody saved edit.txt while it was being replaced; that lies in {kept.name}" in caplog.text
