"""A base that is pinned again and again: git looks at the tree each time, and at nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from git_repository import git, make_repository, write
from remit.workspaces._git import Git
from remit.workspaces._pinning import Bases

FILES = {"README.md": "hello\n", "src/app.py": "print('x')\n", ".gitignore": "build/\n"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that the node runs."""
    commands: list[str] = []
    run = Git.run

    async def recorded(self: Git, *arguments: str, **options: Any) -> bytes:
        commands.append(arguments[0])
        return await run(self, *arguments, **options)

    monkeypatch.setattr(Git, "run", recorded)
    return commands


@pytest.fixture
def bases(tmp_path: Path) -> Bases:
    return Bases(tmp_path / "data", environment={"HOME": str(tmp_path / "home")})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "repository", FILES)
    moment = time.time() - 60
    os.utime(made / ".git/config", (moment, moment))
    time.sleep(0.15)  # what was only just changed isn't believed
    return made


async def test_a_clean_tree_is_looked_at_once(bases: Bases, repository: Path, asked: list[str]) -> None:
    """The second pin of a clean tree is the first one, for one look of git's at the tree."""
    first = await bases.pin(repository)
    listing = await bases.list_base(first)
    asked.clear()
    second = await bases.pin(repository)
    assert await bases.list_base(second) == listing
    assert second == first
    assert asked == ["status"]


async def test_a_change_is_seen_and_its_end_too(bases: Bases, repository: Path) -> None:
    """Whatever changes in the tree is in the next pin, and a tree that is clean again is the clean base."""
    clean = await bases.pin(repository)
    write(repository, {"src/app.py": "print('y')\n"})
    changed = await bases.pin(repository)
    assert changed.id != clean.id
    write(repository, {"src/app.py": "print('x')\n", "new.txt": "n\n"})
    assert [entry.path for entry in (await bases.pin(repository)).uncommitted] == ["new.txt"]
    (repository / "new.txt").unlink()
    assert await bases.pin(repository) == clean
    (repository / "README.md").unlink()
    assert [entry.state for entry in (await bases.pin(repository)).uncommitted] == ["deleted"]


async def test_what_git_ignores_is_told_anew(bases: Bases, repository: Path) -> None:
    """Ignored folders come and go without a change that git would tell."""
    assert (await bases.pin(repository)).ignored_folders == ()
    write(repository, {"build/out": "x"})
    assert (await bases.pin(repository)).ignored_folders == ("build",)


async def test_another_commit_or_branch_is_another_base(bases: Bases, repository: Path) -> None:
    """A clean tree at a new commit, or under another name, isn't the one that was known."""
    first = await bases.pin(repository)
    git(repository, "switch", "-q", "-c", "other")
    other = await bases.pin(repository)
    assert (other.commit, other.branch) == (first.commit, "refs/heads/other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    second = await bases.pin(repository)
    assert second.commit == git(repository, "rev-parse", "HEAD") != first.commit
    assert second.recent[0].endswith("second")


async def test_settings_that_change_are_read_again(bases: Bases, repository: Path) -> None:
    """A setting that lays bytes out otherwise, set between two runs, holds for the second."""
    await bases.pin(repository)
    git(repository, "config", "core.autocrlf", "true")
    write(repository, {"src/app.py": "print('x')\r\n"})
    pin = await bases.pin(repository)
    blob = (await bases.list_base(pin))["src/app.py"].blob
    assert blob is not None
    assert pin.private_git is not None
    shown = await bases.git.run("cat-file", "blob", blob, git_dir=Path(pin.private_git))
    assert shown == b"print('x')\r\n"


async def test_a_pin_that_was_removed_is_made_again(bases: Bases, repository: Path) -> None:
    """What a sweep has removed isn't believed to be there."""
    first = await bases.pin(repository)
    for path in sorted(Path(first.store).rglob("*"), reverse=True):
        path.unlink() if not path.is_dir() else path.rmdir()
    Path(first.store).rmdir()
    again = await bases.pin(repository)
    assert again == first
    assert (Path(again.store) / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert set(await bases.list_base(again)) == set(FILES)
