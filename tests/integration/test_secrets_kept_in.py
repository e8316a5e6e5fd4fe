"""No answer of a checkout tells a secret, whatever command or tool it went through; no delivery takes one."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from git_repository import make_repository
from remit.contract import NodeFailure, Snapshot, SnapshotRequest
from remit.workspaces._delivery import Deliveries, DeliveryOrder
from remit.workspaces.keeper._storage import Storage
from service_kit import FILES, Node, node_of, until

SECRET = "Tok3n-Secret-Canary-77"
SETTINGS: dict[str, Any] = {"secrets": [{"name": "TOKEN", "to": ["tools"]}], "checks": []}

_LONG_LINES = """
import os

token = os.environ["TOKEN"]
for before in range(16_110, 16_140, 3):
    with open(f"read-{before}", "w") as file:
        file.write("a" * before + token + "b" * 40_000)
for width in range(40):
    with open(f"found-{width}", "w") as file:
        file.write("a" * 50 + token + "b" * (70 + width) + "END" + "c" * (90 + width) + token + "d" * 600)
"""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncGenerator[Node]:
    root = make_repository(tmp_path.resolve() / "app", FILES)
    async with node_of(tmp_path, root, variables={"TOKEN": SECRET}, **SETTINGS) as node:
        await node.open()
        yield node


def is_free(storage: Path) -> bool:
    """Whether no process holds a checkout."""
    try:
        os.close(Storage(storage).lock())
    except BlockingIOError:
        return False
    return True


async def test_what_a_file_tool_says_of_a_failure_is_masked(node: Node) -> None:
    """R36, S80: an edit that misses shows the nearest text; a link shows where it leads."""
    made = (
        'printf "one\\nkey = %s\\nthree\\n" $TOKEN > f.txt; mkdir d-$TOKEN; echo x > d-$TOKEN/in; '
        "ln -s d-$TOKEN to; ln -s none-$TOKEN/x dangling"
    )
    await node.tool("run_shell", command=made)
    missing = "*** Begin Patch\n*** Update File: f.txt\n@@\n one\n-key = none\n+x\n*** End Patch"
    answers = [
        await node.tool("edit_file", relative_path="f.txt", old="one\nkey = none\nthree\n", new="x"),
        await node.tool("apply_patch", patch=missing),
        await node.tool("write_file", relative_path="to/in", content="y\n"),
        await node.tool("write_file", relative_path="dangling", content="y\n"),
        await node.tool("move_file", relative_path="to/in", new_relative_path="to/out"),
        await node.tool("delete_file", relative_path="to/out"),
        await node.tool("edit_file", relative_path="to/out", old="y", new="z"),
        await node.tool("list_files"),
    ]
    assert "[redacted]" in answers[0].content
    assert answers[2].changed == ("d-[redacted]/in",)
    assert [answer.content for answer in answers if SECRET in repr(answer)] == []


async def test_half_a_secret_at_a_cut_is_masked(node: Node) -> None:
    """R42, S80: where a part of a long line is shown, what is left of a secret at its ends isn't."""
    await node.tool("write_file", relative_path="make.py", content=_LONG_LINES)
    assert (await node.tool("run_shell", command="python3 make.py")).exit_code == 0
    shown = 0
    for before in range(16_110, 16_140, 3):  # around what is read of a line at most
        read = await node.tool("read_file", relative_path=f"read-{before}")
        assert SECRET[:6] not in read.content, before
        shown += "[redacted]" in read.content
    assert shown
    found = await node.tool("search", pattern="END", glob="found-*")
    assert found.content.count("END") == 40
    assert not any(SECRET[at : at + 6] in found.content for at in range(len(SECRET) - 5))


async def test_names_and_flags_of_a_patch_tell_no_secret(node: Node) -> None:
    """R48, S80: names of files, skipped and ignored ones too, are masked in all that a snapshot says."""
    await node.tool(
        "run_shell",
        command='echo x > "n-$TOKEN"; mkfifo "p-$TOKEN"; ln -s x "l-$TOKEN"; truncate -s 70M "big-$TOKEN"; '
        "echo 'ig-*' > .gitignore; echo x > ig-$TOKEN; mkdir .github; mkdir .github/workflows; "
        "echo x > .github/workflows/$TOKEN.yml",
    )
    snapshot = await node.snapshot()
    assert SECRET not in repr(snapshot)
    assert "n-[redacted]" in snapshot.frozen
    assert "skipped:p-[redacted] (named pipe)" in snapshot.flags
    refused = await node.deliver(snapshot, allow_protected=True)
    assert refused.refused
    assert SECRET not in repr(refused)


async def test_no_delivery_takes_a_secret(node: Node) -> None:
    """R36, S80: not the node's, none by hand, not to a branch, not by a merge; names are no globs."""
    await node.tool("run_shell", command='echo "$TOKEN" > "[f].txt"; echo fine > ok.txt')
    snapshot = await node.snapshot()
    await node.cleanup()
    refused = await node.deliver(snapshot)
    assert (refused.refused, refused.paths) == (True, ("[f].txt",))
    assert (await node.deliver(snapshot, branch="work", message="Work")).refused
    order = DeliveryOrder(
        run_id="run_1",
        root=node.root,
        content_hash=snapshot.content_hash,
        patch_sha256=snapshot.patch_sha256,
        allow_protected=True,
    )
    by_hand = Deliveries(
        node.root.parent / "data"
    )  # as `remit patch --apply` has it: no secret is known there
    assert by_hand.deliver(order).status == "refused"
    assert (await node.service.merge("app", order)).outcome.status == "refused"
    assert not (node.root / "ok.txt").exists()


async def test_what_a_dead_process_left_is_masked_too(tmp_path: Path, node: Node) -> None:
    """R57, S80: the next process masks what it reads, or, not given the secret, shows nothing."""
    await node.tool("run_shell", command="echo key=$TOKEN > f.txt")
    keeper = await node.service.get_keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    await until(lambda: is_free(tmp_path / "data/checkouts/run_1"))
    asked = SnapshotRequest(run_id="run_1", generation=2)
    async with node_of(tmp_path, node.root, **SETTINGS) as unaware:
        answer = await unaware.ask(asked, NodeFailure)
        assert "the secret TOKEN isn't there" in answer.message
    async with node_of(tmp_path, node.root, variables={"TOKEN": SECRET}, **SETTINGS) as later:
        seen = await later.ask(asked, Snapshot)
        assert SECRET not in repr(seen)
        assert "+key=[redacted]" in seen.patch
        assert seen.frozen == ("f.txt",)
