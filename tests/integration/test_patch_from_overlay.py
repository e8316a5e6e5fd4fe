"""Changes read from a real overlay's upper folder, as root and as a user."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_repository import git, make_repository, write
from remit.workspaces._changes import Blobs, Changes
from remit.workspaces._collect import collect_changes
from remit.workspaces._patch import PatchFolders, write_patch
from remit.workspaces._pinning import Bases
from remit.workspaces.keeper._tree import scan_upper

MOUNT = """
import sys, subprocess
from pathlib import Path
from remit.workspaces.keeper._mounts import Overlay, enter_mount_namespace, mount_overlay
lower, upper, work, target, script = map(Path, sys.argv[1:])
try:
    privileged = enter_mount_namespace()
    mount_overlay(Overlay(lower=lower, upper=upper, work=work, target=target), privileged=privileged)
except OSError as error:
    print(error)
    sys.exit(77)
sys.exit(subprocess.run(["/bin/sh", "-eu", str(script)], cwd=target).returncode)
"""


class Checkout:
    """A base, and an overlay over it that a script changes."""

    def __init__(self, folder: Path, files: dict[str, str | bytes]) -> None:
        self.folder = folder
        self.root = make_repository(folder / "root", files)
        (folder / "home").mkdir()
        self.bases = Bases(folder / "data", environment={"HOME": str(folder / "home")})
        for name in ("upper", "work", "target"):
            (folder / name).mkdir()

    def run(self, script: str) -> None:
        """Run a shell script in the merged tree."""
        path = self.folder / "script.sh"
        path.write_text(script)
        folders = [self.folder / name for name in ("upper", "work", "target")]
        command = [sys.executable, "-c", MOUNT, str(self.root), *map(str, folders), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 77:
            pytest.skip(f"no overlay can be mounted here: {done.stdout}")
        assert done.returncode == 0, done.stderr

    async def collect(self) -> tuple[Changes, bytes]:
        """The changes and their patch."""
        pin = await self.bases.pin(self.root)
        blobs = Blobs(self.folder / "blobs")
        upper = self.folder / "upper"
        changes = await collect_changes(
            self.bases.git,
            pin=pin,
            listing=await self.bases.list_base(pin),
            scan=scan_upper(str(upper), max_entries=10_000),
            result=upper,
            blobs=blobs,
        )
        folders = PatchFolders(self.folder / "patches")
        return changes, (await write_patch(self.bases.git, changes.changes, blobs, folders)).text


FILES: dict[str, str | bytes] = {
    "keep.txt": "kept\n",
    "edit.txt": "one\ntwo\n",
    "drop.txt": "gone soon\n",
    "same.txt": "rewritten with the same bytes\n",
    "mode.sh": "#!/bin/sh\n",
    "folder/a.txt": "a\n",
    "folder/b.txt": "b\n",
    "swap/x.txt": "x\n",
    "file-to-folder": "f\n",
    "linked.txt": "l\n",
    ".gitignore": "build/\n*.log\n!keep.log\n",
    "sub/.gitignore": "local\n",
    "build-it.txt": "",
}


async def test_every_kind_of_change(tmp_path: Path) -> None:
    """R45: edits, removals, modes, links, replaced folders; what is only touched isn't a change."""
    checkout = Checkout(tmp_path, FILES)
    checkout.run("""
        echo three >> edit.txt
        rm drop.txt
        cp same.txt x; mv x same.txt
        touch keep.txt
        chmod 755 mode.sh
        rm -r folder; mkdir folder; echo new > folder/c.txt; echo b > folder/b.txt
        rm -r swap; echo now-a-file > swap
        rm file-to-folder; mkdir file-to-folder; echo y > file-to-folder/y
        rm linked.txt; ln -s /etc/passwd linked.txt
        printf 'bin\\000ary' > new.bin
        mkdir -p empty/folder
    """)
    changes, patch = await checkout.collect()
    assert {(change.path, change.kind) for change in changes.changes} == {
        ("edit.txt", "modified"),
        ("drop.txt", "deleted"),
        ("mode.sh", "mode"),
        ("folder/a.txt", "deleted"),
        ("folder/c.txt", "added"),
        ("swap", "added"),
        ("swap/x.txt", "deleted"),
        ("file-to-folder", "deleted"),
        ("file-to-folder/y", "added"),
        ("linked.txt", "type"),
        ("new.bin", "added"),
    }
    assert changes.skipped == ()
    git(checkout.root, "apply", "--index", "-", stdin=patch)
    assert git(checkout.root, "diff", "--cached", "--name-status", "--no-renames").count("\n") == 10


async def test_ignored_changes_are_counted_and_named(tmp_path: Path) -> None:
    """Ignored files aren't part of the patch, by the rules of the result; they are counted and named."""
    checkout = Checkout(tmp_path, FILES)
    write(checkout.root, {"build/old.o": "o", "sub/local": "l"})
    checkout.run("""
        mkdir -p build deep/build pkg/__pycache__ node_modules/x
        echo o > build/new.o; echo o > deep/build/x.o; echo p > pkg/__pycache__/a.pyc
        echo l >> sub/local; rm build/old.o
        echo x > node_modules/x/index.js
        echo x > a.log; echo x > keep.log; echo x > 'pkg/:odd.log'; echo code > pkg/code.py
        mkdir fresh; echo '*.tmp' > fresh/.gitignore; echo t > fresh/a.tmp; echo t > b.tmp
    """)
    changes, _ = await checkout.collect()
    assert {change.path for change in changes.changes} == {
        "keep.log",
        "pkg/code.py",
        "fresh/.gitignore",
        "b.tmp",
    }
    assert changes.ignored == 9
    assert {"build/new.o", "build/old.o", "sub/local", "pkg/:odd.log"} <= set(changes.ignored_names)


async def test_hiding_behind_a_changed_ignore_file_fails(tmp_path: Path) -> None:
    """R83: a run can't hide a change to a file of the base by ignoring it."""
    checkout = Checkout(tmp_path, FILES)
    checkout.run("echo '*' > .gitignore; echo evil >> edit.txt; echo x > invisible.txt; rm drop.txt")
    changes, _ = await checkout.collect()
    assert {change.path for change in changes.changes} == {".gitignore", "edit.txt", "drop.txt"}
    assert changes.ignored_names == ("invisible.txt",)


async def test_what_a_patch_cannot_hold_is_skipped_and_said(tmp_path: Path) -> None:
    """R48: pipes, sockets, sparse giants and git's own folders neither block nor get into the patch."""
    checkout = Checkout(tmp_path, FILES)
    checkout.run("""
        mkfifo pipe; mkfifo folder/pipe; rm edit.txt; mkfifo edit.txt
        truncate -s 1T sparse
        mkdir .git/evil 2>/dev/null || mkdir -p .git/evil; echo x > .git/evil/x
        mkdir -p inner/.git/hooks; echo x > inner/.git/hooks/pre-commit; echo i > inner/i.txt
        mkdir -p up/.GIT 'up/git~1'; echo x > up/.GIT/config; echo x > 'up/git~1/config'
        mkdir -p build/r/.git && echo x > build/r/.git/config
        mkdir .remit-write-0123456789abcdef; echo x > .remit-write-0123456789abcdef/conftest.py
        ln -s keep.txt .gitmodules
        ln -s "$(printf 'x\\377')" odd
        chmod 000 drop.txt
    """)
    changes, patch = await checkout.collect()
    paths = {change.path for change in changes.changes}
    assert {"inner/i.txt", "edit.txt"} <= paths <= {"inner/i.txt", "edit.txt", "drop.txt"}
    why = {skipped.path: skipped.why for skipped in changes.skipped}
    assert why["pipe"] == why["folder/pipe"] == why["edit.txt"] == "named pipe"
    assert why["sparse"] == "larger than 64 MiB"
    assert ".gitmodules" in why
    assert why["inner/.git"] == why["up/.GIT"] == why["up/git~1"] == "git's own name"
    assert changes.ignored_names == (".remit-write-0123456789abcdef/conftest.py",)
    assert not [path for path in why if path.startswith("build/")]
    assert why["odd"] == "a link whose target isn't UTF-8"
    assert b".git" not in patch.lower()
    assert b"git~1" not in patch
    if os.getuid() != 0:
        assert "drop.txt" in why


async def test_submodules_and_inner_repositories_are_left_alone(tmp_path: Path) -> None:
    """A change inside a submodule or an embedded repository isn't part of the patch; it is said."""
    checkout = Checkout(tmp_path, FILES)
    inner = make_repository(tmp_path / "inner", {"inside.txt": "x\n"})
    git(checkout.root, "submodule", "--quiet", "add", str(inner), "module")
    git(checkout.root, "commit", "-qm", "submodule")
    make_repository(checkout.root / "vendored", {"v.txt": "v\n"})
    checkout.run(
        "echo y >> module/inside.txt; echo y > module/new; echo v >> vendored/v.txt; echo e >> edit.txt"
    )
    changes, _ = await checkout.collect()
    assert [change.path for change in changes.changes] == ["edit.txt"]
    assert {(entry.path, entry.why) for entry in changes.skipped} == {
        ("module/inside.txt", "submodule"),
        ("module/new", "submodule"),
        ("vendored/v.txt", "another repository"),
    }


async def test_links_are_content_and_never_followed(tmp_path: Path) -> None:
    """R34: a link that leads out of the tree is recorded as its target; what it points to isn't read."""
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret")
    checkout = Checkout(tmp_path, FILES)
    checkout.run(f"ln -s {secret} leak; ln -s {tmp_path} out; rm -r swap; ln -s {tmp_path} swap")
    changes, patch = await checkout.collect()
    assert {(change.path, change.kind) for change in changes.changes} == {
        ("leak", "added"),
        ("out", "added"),
        ("swap", "added"),
        ("swap/x.txt", "deleted"),
    }
    assert b"s3cret" not in patch


async def test_a_full_disk_leaves_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R60: where a file's bytes can't be kept there is no patch, not one without that file."""
    checkout = Checkout(tmp_path, FILES)
    checkout.run("echo more >> edit.txt; echo new > new.txt")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Blobs, "keep_file", full)
    with pytest.raises(OSError, match="No space left"):
        await checkout.collect()


async def test_the_pinned_base_outlives_the_users_edits(tmp_path: Path) -> None:
    """A base file that the user edits while the run works: the patch is still against the pinned bytes."""
    checkout = Checkout(tmp_path, FILES)
    pin = await checkout.bases.pin(checkout.root)
    checkout.run("echo three >> edit.txt; rm drop.txt; echo x >> keep.txt")
    write(checkout.root, {"edit.txt": "the user was here\n"})
    (checkout.root / "drop.txt").unlink()
    blobs = Blobs(tmp_path / "blobs")
    changes = await collect_changes(
        checkout.bases.git,
        pin=pin,
        listing=await checkout.bases.list_base(pin),
        scan=scan_upper(str(tmp_path / "upper"), max_entries=1000),
        result=tmp_path / "upper",
        blobs=blobs,
    )
    moved = {change.path for change in changes.changes if change.moved}
    assert moved == {"edit.txt", "drop.txt"}
    folders = PatchFolders(tmp_path / "patches")
    patch = await write_patch(checkout.bases.git, changes.changes, blobs, folders)
    assert b" one\n two\n+three\n" in patch.text
    assert b"-gone soon\n" in patch.text
