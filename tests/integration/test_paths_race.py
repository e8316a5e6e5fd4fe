"""An attacker who flips links all the time doesn't get a file operation out of the root."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.workspaces.keeper import _paths
from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._refusals import OperationRefused

RACE_S = 3.0
PATH = "a/b/target"


class Arena:
    """A root with a folder and a file that an attacker swaps with links to the outside."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        for place, text in ((self.root / "a" / "b", "inside"), (self.outside / "b", "outside")):
            place.mkdir(parents=True)
            (place / "target").write_text(text)
        (self.root / "flip").symlink_to(self.outside)
        (self.root / "a" / "leaf").symlink_to(self.outside / "b" / "target")

    def attack(self) -> None:
        """Swaps the folder `a` with a link to the outside, and the leaf with such a link, for ever."""
        os.chdir(self.root)
        exchange = _exchange()
        while True:
            exchange("a", "flip")
            exchange("a", "flip")
            exchange("a/b/target", "a/leaf")
            exchange("a/b/target", "a/leaf")

    def outside_files(self) -> dict[str, str]:
        found = self.outside.rglob("*")
        return {str(path): path.read_text() if path.is_file() else "" for path in found}


def _exchange() -> Callable[[str, str], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def exchange(one: str, other: str) -> None:
        libc.renameat2(-100, one.encode(), -100, other.encode(), 2)  # AT_FDCWD, RENAME_EXCHANGE

    return exchange


def race(arena: Arena, use: Callable[[], str], seconds: float) -> tuple[int, int, int]:
    """Uses the path against the attacker; returns how often it was used, refused, and led outside."""
    attacker = os.fork()
    if attacker == 0:
        try:
            arena.attack()
        finally:
            os._exit(1)
    uses = refusals = escapes = 0
    before = arena.outside_files()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            uses += 1
            try:
                escapes += use() == "outside"
            except (OperationRefused, OSError):
                refusals += 1
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    return uses, refusals, escapes + (arena.outside_files() != before)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena(tmp_path)


@pytest.mark.slow
def test_paths_race_catches_a_naive_check(arena: Arena) -> None:
    """R34: the attacker is real: checking the resolved path and opening it then is caught in the act."""

    def naive() -> str:
        real = (arena.root / PATH).resolve()
        if not real.is_relative_to(arena.root):
            raise OSError
        return (arena.root / PATH).read_text()

    _, _, escapes = race(arena, naive, RACE_S)
    assert escapes > 0


READS = [("read_file", {"relative_path": PATH})]
CHANGES = [
    ("write_file", {"relative_path": PATH, "content": "inside"}),
    ("write_file", {"relative_path": "a/b/made/deep", "content": "inside"}),
    ("move_file", {"relative_path": "a/b/made/deep", "new_relative_path": "a/b/moved"}),
    ("delete_file", {"relative_path": "a/b/moved"}),
    ("move_file", {"relative_path": PATH, "new_relative_path": "a/b/kept"}),
    ("move_file", {"relative_path": "a/b/kept", "new_relative_path": PATH}),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["openat2", "walk"])
@pytest.mark.parametrize("operations", [READS, CHANGES], ids=["read", "change"])
def test_paths_race_finds_no_way_out(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, way: str, operations: list[tuple[str, dict[str, object]]]
) -> None:
    """R34, S55: no read and no change of three seconds' trying leaves the root."""
    if way == "openat2" and _paths._opener is not _paths.openat2_beneath:
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(_paths, "_opener", getattr(_paths, f"{way}_beneath"))
    root_fd = os.open(arena.root, os.O_RDONLY | os.O_DIRECTORY)
    turn = itertools.cycle(operations)

    def use() -> str:
        name, arguments = next(turn)
        return str(OPERATIONS[name](root_fd, arguments)["content"])

    try:
        uses, refusals, escapes = race(arena, use, RACE_S)
    finally:
        os.close(root_fd)
    assert escapes == 0
    assert refusals > 0, "the attacker never got in the way"
    assert uses - refusals > 0, "no operation ever got through"
