"""Nothing that a repository brings along runs when the node looks at it (R35)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from git_repository import git, make_repository, write
from remit.errors import NodeError
from remit.workspaces._git import Git, GitError, make_git_folder
from remit.workspaces._pinning import Bases


def plant(folder: Path, marker: Path) -> None:
    """Make every known way to run something on a git command leave a mark."""
    script = folder.parent / "planted.sh"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat\n')
    script.chmod(0o755)
    included = folder.parent / "included.config"
    included.write_text(f"[core]\n\tfsmonitor = {script}\n\tpager = {script}\n")
    settings = {
        "core.fsmonitor": str(script),
        "diff.external": str(script),
        "diff.planted.textconv": str(script),
        "diff.planted.command": str(script),
        "filter.planted.clean": str(script),
        "filter.planted.smudge": str(script),
        "filter.planted.process": str(script),
        "filter.planted.required": "true",
        "merge.planted.driver": str(script),
        "core.hooksPath": str(folder / "hooks"),
        "core.pager": str(script),
        "core.editor": str(script),
        "core.sshCommand": str(script),
        "gpg.program": str(script),
        "commit.gpgSign": "true",
        "log.showSignature": "true",
        "alias.status": f"!{script}",
        "alias.diff": f"!{script}",
        "core.worktree": str(folder.parent),
        "core.askPass": str(script),
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{script}",
        "remote.origin.uploadpack": str(script),
        "protocol.ext.allow": "always",
        "include.path": str(included),
        f"includeIf.gitdir:{folder}/.path": str(included),
    }
    config = folder / ".git/config"
    with config.open("a") as file:
        for name, value in settings.items():
            section, _, key = name.rpartition(".")
            head, _, tail = section.partition(".")
            file.write(f'[{head} "{tail}"]\n' if tail else f"[{head}]\n")
            file.write(f'\t{key} = "{value}"\n')
    for hook in (
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        for place in (folder / "hooks", folder / ".git/hooks"):
            place.mkdir(exist_ok=True)
            (place / hook).write_text(script.read_text())
            (place / hook).chmod(0o755)


def clock_forward(folder: Path) -> None:
    """Make the index's facts stale, so that git has to read the files."""
    for path in folder.rglob("*.txt"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, Path]:
    """A repository full of traps, and the file that a trap would write."""
    folder = make_repository(
        tmp_path / "repository",
        {
            "a.txt": "one\n",
            "b/c.txt": "two\n",
            ".gitattributes": "*.txt filter=planted diff=planted merge=planted text\n",
        },
    )
    write(folder, {"a.txt": "changed\n", "new.txt": "untracked\n"})
    inner = make_repository(tmp_path / "inner", {"inside.txt": "x\n"})
    git(folder, "submodule", "--quiet", "add", str(inner), "sub")
    git(folder, "commit", "-qm", "submodule")
    marker = tmp_path / "marker"
    plant(folder, marker)
    with (folder / ".git/modules/sub/config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "{tmp_path / "planted.sh"}"\n')
    clock_forward(folder)
    return folder, marker


@pytest.mark.parametrize("wanted", [None, "head", "HEAD~1"])
async def test_nothing_planted_runs_while_a_base_is_pinned(
    planted: tuple[Path, Path], tmp_path: Path, wanted: str | None
) -> None:
    """R35: config, attributes, hooks, filters and submodules of the repository are data for the node."""
    folder, marker = planted
    bases = Bases(tmp_path / "data", environment={"HOME": str(tmp_path / "home")})
    pin = await bases.pin(folder, wanted=wanted)
    assert await bases.list_base(pin)
    assert not marker.exists(), marker.read_text()


def test_the_trap_is_a_trap(planted: tuple[Path, Path]) -> None:
    """R35: the same repository does run something under a git that trusts it, so the test above can fail."""
    folder, marker = planted
    subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False, timeout=60)
    assert marker.exists()


async def test_the_users_git_folder_is_only_read(planted: tuple[Path, Path], tmp_path: Path) -> None:
    """R35: index, objects, references and config of the user stay as they were, to the nanosecond."""
    folder, _ = planted

    def facts() -> dict[str, tuple[int, int, int]]:
        paths = [folder / ".git", *(folder / ".git").rglob("*")]
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size, p.lstat().st_ino) for p in paths}

    before = facts()
    bases = Bases(tmp_path / "data", environment={"HOME": str(tmp_path / "home")})
    await bases.pin(folder)
    await bases.pin(folder, wanted="head")
    assert facts() == before


async def test_git_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    """R55: node-side git is bounded in time, and its process is gone afterwards."""
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(GitError, match="took longer"):
        await Git(executable=str(slow)).run("status", timeout_ms=100)


async def test_no_git_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R11: a machine without git gets a sentence that says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeError, match="install it"):
        Git.find()


async def test_git_sees_nothing_of_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R36: GIT_* variables and config of the caller don't reach node-side git."""
    marker = tmp_path / "marker"
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {marker}")
    monkeypatch.setenv("GIT_TRACE", str(marker))
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    folder = make_git_folder(tmp_path / "folder")
    assert await Git.find().run("count-objects", git_dir=folder) == b"0 objects, 0 kilobytes\n"
    assert not marker.exists()
