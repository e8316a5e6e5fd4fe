"""Small git repositories for tests, and a look at a whole tree."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

IDENTITY = (
    "-c",
    "user.name=Tester",
    "-c",
    "user.email=tester@example.invalid",
    "-c",
    "protocol.file.allow=always",
)


def git(
    folder: Path, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> str:
    """Run git as a user would, and return what it printed."""
    done = subprocess.run(
        ["git", *IDENTITY, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **(environment or {})},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "replace").strip()


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files, making their folders."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_repository(folder: Path, files: Mapping[str, str | bytes], *, branch: str = "main") -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", branch)
    write(folder, files)
    git(folder, "add", "-A", "--force")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def look(folder: Path, *, skip: tuple[str, ...] = (".git",)) -> dict[str, tuple[str, bytes]]:
    """Everything in a tree: path to (kind and permissions, content)."""
    seen: dict[str, tuple[str, bytes]] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in skip]
        for name in [*names, *folders]:
            path = Path(parent) / name
            info = path.lstat()
            key = os.fsencode(path.relative_to(folder)).decode("latin-1")
            if stat.S_ISLNK(info.st_mode):
                seen[key] = ("link", os.fsencode(os.readlink(path)))
            elif stat.S_ISREG(info.st_mode):
                seen[key] = (f"file {stat.S_IMODE(info.st_mode):o}", path.read_bytes())
            elif stat.S_ISDIR(info.st_mode):
                seen[key] = ("folder", b"")
            else:
                seen[key] = ("special", b"")
    return seen
