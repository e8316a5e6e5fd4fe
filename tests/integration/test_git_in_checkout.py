"""The private git folder inside a real checkout, used by sandboxed commands."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from git_repository import git, look, make_repository, write
from keeper_places import run
from remit.workspaces import CheckoutRequest, Keeper
from remit.workspaces._base import BasePin
from remit.workspaces._changes import Blobs
from remit.workspaces._collect import collect_changes
from remit.workspaces._pinning import Bases
from remit.workspaces.keeper._tree import record_tree, scan_recorded, scan_upper

SAFE = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


def request_for(pin: BasePin, data: Path, name: str = "c1") -> CheckoutRequest:
    """A checkout of a pinned base, with its own git."""
    storage = data / "checkouts" / name
    assert pin.private_git
    return CheckoutRequest(
        checkout_id=name,
        root=Path(pin.root),
        lower=Path(pin.lower),
        storage=storage,
        data=data,
        is_git=True,
        git_dir=storage / "git",
        git_template=Path(pin.private_git),
        object_stores=tuple(map(Path, pin.object_stores)),
        carry=(".venv",),
        environment=SAFE,
    )


async def said(checkout, text: str) -> str:
    result = await run(checkout, text)
    assert result.exit_code == 0, result.text
    return result.stdout.decode().strip()


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_git_folder_is_made_for_the_first_look(tmp_path: Path, isolation: str) -> None:
    """A checkout that nothing looks into gets no git folder; whoever looks first sees the private one."""
    root = make_repository(tmp_path / "repo", {"a.txt": "a\n"})
    (root / ".git/config").write_text((root / ".git/config").read_text() + "# token-of-the-user\n")
    data = tmp_path / "data"
    pin = await Bases(data, environment={"HOME": str(tmp_path / "home")}).pin(root)
    async with await Keeper.start(data=data) as keeper:
        for name in ("c1", "c2", "c3"):
            request = replace(request_for(pin, data, name), isolation=isolation)
            checkout = await keeper.open(request)
            assert not (request.storage / "git").exists()
            if name == "c1":
                read = await checkout.call("read_file", {"relative_path": ".git/config"})
                assert "[core]" in str(read["content"])
                assert "token-of-the-user" not in str(read["content"])
            elif name == "c2":
                assert "token-of-the-user" not in await said(checkout, "cat .git/config")
                assert await said(checkout, "git log --format=%s") == await said(
                    checkout, "git log --format=%s"
                )
            assert (request.storage / "git").exists() is (name != "c3")
            assert await checkout.close(keep=True) == ()
            again = await keeper.open(replace(request, generation=2))
            assert await said(again, "git status --porcelain") == ""
            assert await again.close() == ()
            assert not request.storage.exists()


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("wanted", [None, "head"])
async def test_git_in_the_sandbox(tmp_path: Path, isolation: str, linked: bool, wanted: str | None) -> None:
    """In a checkout git starts clean on the base and works; the user's tree stays as it is."""
    root = make_repository(tmp_path / "repo", {"a.txt": "a\n", ".gitignore": ".venv/\n"})
    if linked:
        git(root, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"))
        root = tmp_path / "linked"
    write(root, {"a.txt": "dirty\n", "new.txt": "n\n", ".venv/marker": "v\n"})
    before = look(root, skip=())
    data = tmp_path / "data"
    bases = Bases(data, environment={"HOME": str(tmp_path / "home")})
    pin = await bases.pin(root, wanted=wanted)
    async with await Keeper.start(data=data) as keeper:
        checkout = await keeper.open(replace(request_for(pin, data), isolation=isolation))
        assert await said(checkout, "git status --porcelain") == ""
        assert await said(checkout, "git log --format=%s | tail -1") == "first"
        assert await said(checkout, "git branch --show-current") == ("topic" if linked else "main")
        assert await said(checkout, "cat a.txt") == ("a" if wanted else "dirty")
        assert await said(checkout, "cat .venv/marker") == "v"
        await said(checkout, "echo more >> a.txt; git add -A; git commit -qm mine; git stash list; git gc -q")
        assert await said(checkout, "git show --format=%s --name-only") == "mine\n\na.txt"
        store = pin.object_stores[-1]
        refused = await run(checkout, f"touch {store}/pack/x || exit 7")
        assert refused.exit_code == 7
        storage = checkout.storage
        layer = storage / ("upper" if isolation == "overlay" else "tree")
        scan = (
            scan_upper(str(layer), max_entries=1000)
            if isolation == "overlay"
            else scan_recorded(str(layer), {}, max_entries=1000)
        )
        listing = await bases.list_base(pin)
        changes = await collect_changes(
            bases.git, pin=pin, listing=listing, scan=scan, result=layer, blobs=Blobs(data / "blobs")
        )
        assert [(change.path, change.kind) for change in changes.changes] == [("a.txt", "modified")]
        assert await checkout.close() == ()
    assert look(root, skip=()) == before


async def test_a_large_repository_opens_fast(tmp_path: Path) -> None:
    """A checkout's git folder costs the copy of an index; git status in it is clean without reading files."""
    files: dict[str, str | bytes] = {f"d{n % 30}/f{n}.txt": f"{n}\n" for n in range(1_500)}
    root = make_repository(tmp_path / "repo", files)
    data = tmp_path / "data"
    bases = Bases(data, environment={"HOME": str(tmp_path / "home")})
    pin = await bases.pin(root)
    async with await Keeper.start(data=data) as keeper:
        began = time.perf_counter()
        checkout = await keeper.open(request_for(pin, data))
        took = time.perf_counter() - began
        assert await said(checkout, "git status --porcelain") == ""
        assert await said(checkout, "git rev-parse HEAD") == git(root, "rev-parse", "HEAD")
        await checkout.close()
    assert took < 2


async def test_a_copy_is_compared_with_recorded_facts(tmp_path: Path) -> None:
    """In `copy` a change that keeps size and time is found all the same."""
    root = make_repository(tmp_path / "repo", {"a.txt": "aaaa\n", "b.txt": "b\n", "sub/c.txt": "c\n"})
    data = tmp_path / "data"
    bases = Bases(data, environment={"HOME": str(tmp_path / "home")})
    pin = await bases.pin(root)
    async with await Keeper.start(data=data) as keeper:
        checkout = await keeper.open(replace(request_for(pin, data), isolation="copy"))
        tree = str(checkout.storage / "tree")
        facts = record_tree(tree, max_entries=1000)
        assert scan_recorded(tree, facts, max_entries=1000).found == []
        await said(
            checkout,
            "cp -p a.txt /tmp/t; printf bbbb > a.txt; echo >> a.txt; touch -r /tmp/t a.txt; rm sub/c.txt",
        )
        scan = scan_recorded(tree, facts, max_entries=1000)
        assert {(found.path, found.kind) for found in scan.found} == {
            ("a.txt", "file"),
            ("sub/c.txt", "gone"),
        }
        await checkout.close()
