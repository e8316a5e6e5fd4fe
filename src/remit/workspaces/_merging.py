"""Merges a run's patch with a tree that has moved on since: file by file, all or nothing, by hand alone.

What comes of it isn't what was reviewed, so nothing merges by itself: a person asks for it, and the
workspace's checks run once more, on the moved tree with and without the merged changes. The merged changes
are kept beside the reviewed ones, under a content hash of their own, and are delivered and undone like them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.contract import CheckResult, PrepareRequest
from remit.errors import NodeError
from remit.workspaces._changes import Blobs, Change, Changes, Content, shown, sort_changes
from remit.workspaces._checks import CheckDefinition, CheckRun, describe_broken, run_check
from remit.workspaces._delivery import DeliveryOrder, Outcome, refused_paths
from remit.workspaces._git import Git
from remit.workspaces._patch import PatchFolders, write_patch
from remit.workspaces._placing import Seen, look_at, split
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._service_checking import judge
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._snapshot import Bundle, RunFolder, keep_bundle
from remit.workspaces.keeper._tree import opened_folder_at

if TYPE_CHECKING:
    from remit.workspaces._service_parts import NodeParts

__all__ = ["Merged", "merge_run"]

_TEXT_AT_MOST = 8 << 20
_REGULAR = frozenset({"100644", "100755"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What came of a merge."""

    outcome: Outcome
    checks: tuple[CheckResult, ...] = ()
    """On the moved tree without and with the merged changes; empty: none was run."""
    broken: tuple[str, ...] = ()
    """Of each check that is worse: how, and its output's end. Not empty: nothing was applied."""


async def merge_run(
    node: NodeParts, settings: WorkspaceSettings, order: DeliveryOrder, *, subdir: str = "", timeout_ms: int
) -> Merged:
    """Merge a run's changes into its tree, check, and apply.

    Args:
        node: The node that keeps them.
        settings: Of the workspace.
        order: What was to be delivered.
        subdir: The working folder, whose checks count.
        timeout_ms: What preparing and checking may take.

    Raises:
        NodeError: They aren't kept, aren't those that were reviewed, or can't be written.

    Cancellation: before the delivery nothing is changed; from there on it is done whole.
    """
    run = RunFolder.of(node.data, order.run_id)
    bundle = await asyncio.to_thread(run.load, order.content_hash)
    if bundle.patch.sha256 != order.patch_sha256:
        raise NodeError("that patch isn't the one of these changes", reason="refused")
    refused = await asyncio.to_thread(refused_paths, order, bundle)
    if refused:
        return Merged(outcome=Outcome(status="refused", paths=refused))
    changes, conflicts = await _Merge(node.bases.git, run, order.root).merge(bundle.changes.changes)
    if conflicts:
        return Merged(outcome=Outcome(status="conflict", paths=conflicts))
    if not changes:
        return Merged(outcome=Outcome(status="empty", why="the tree holds all of it already"))
    merged = await _keep(node.bases.git, run, changes, node.patch_folders)
    async with asyncio.timeout(timeout_ms / 1000):
        checks, broken = await _check(node, settings, run, merged, subdir, timeout_ms)
    if broken:
        return Merged(outcome=Outcome(status="refused", paths=shown(changes)), checks=checks, broken=broken)
    wanted = replace(order, content_hash=merged.content_hash, patch_sha256=merged.patch.sha256)
    outcome = await asyncio.shield(asyncio.to_thread(node.deliveries.deliver, wanted))
    return Merged(outcome=outcome, checks=checks)


async def _keep(git: Git, run: RunFolder, changes: Sequence[Change], folders: PatchFolders) -> Bundle:
    merged = Changes(changes=tuple(changes))
    if await asyncio.to_thread(run.bundle(merged.content_hash).is_dir):
        return await asyncio.to_thread(run.load, merged.content_hash)
    patch = await write_patch(git, merged.changes, run.blobs, folders)
    bundle = Bundle(changes=merged, patch=patch, blobs=run.blobs)
    await asyncio.to_thread(keep_bundle, run, bundle)
    return bundle


class _Merge:
    """Three sides of each path: what the run started from, what it made of it, and what lies there now."""

    def __init__(self, git: Git, run: RunFolder, root: Path) -> None:
        self._git = git
        self._blobs = run.blobs
        self._run = run
        self._root = root

    async def merge(self, changes: Sequence[Change]) -> tuple[tuple[Change, ...], tuple[str, ...]]:
        """What is to be changed in the tree as it is now, and the paths where both sides did differently."""
        found: list[Change] = []
        conflicts: list[Change] = []
        for change in changes:
            now = await asyncio.to_thread(self._look, change.path)
            made = await self._one(change, now)
            if made is None:
                conflicts.append(change)
            elif made.base != made.result:
                found.append(made)
        return sort_changes(found), shown(conflicts)

    def _look(self, path: str) -> Seen:
        root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            seen = look_at(root_fd, path)
            if seen.kind == "content" and seen.content is not None and seen.content.mode in _REGULAR:
                folders, name = split(path)
                with opened_folder_at(root_fd, folders) as fd:
                    sha256, size, _ = self._blobs.keep_file(fd, name, max_bytes=_TEXT_AT_MOST)
                if (sha256, size) != (seen.content.sha256, seen.content.size):
                    return Seen("special")  # it is being written right now
            return seen
        except OSError:
            return Seen("special")
        finally:
            os.close(root_fd)

    async def _one(self, change: Change, now: Seen) -> Change | None:
        """None: it can't be merged."""
        if change.base_lost:
            return None
        if now.holds(change.base):
            return replace(change, moved=False)
        if now.holds(change.result):
            return Change(change.path, change.result, change.result)
        base, theirs, ours = change.base, change.result, now.content
        if base is None or theirs is None or ours is None or now.kind != "content":
            return None
        if not {base.mode, theirs.mode, ours.mode} <= _REGULAR:
            return None
        mode = ours.mode if theirs.mode == base.mode else theirs.mode
        data = await self._texts(ours, base, theirs)
        if data is None:
            return None
        sha256 = await asyncio.to_thread(self._blobs.keep, data)
        return Change(change.path, ours, Content(mode, sha256, len(data)))

    async def _texts(self, ours: Content, base: Content, theirs: Content) -> bytes | None:
        """The three merged, by lines; None: both changed the same ones, or it is no text."""
        if ours.sha256 == base.sha256:
            return await asyncio.to_thread(self._blobs.read, theirs)
        if theirs.sha256 in (base.sha256, ours.sha256):
            return await asyncio.to_thread(self._blobs.read, ours)
        if max(ours.size, base.size, theirs.size) > _TEXT_AT_MOST:
            return None
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=self._run.folder) as scratch:
            names = await asyncio.to_thread(_lay_out, Path(scratch), self._blobs, (ours, base, theirs))
            try:
                return await self._git.run(
                    "merge-file", "--stdout", "--quiet", *names, work_tree=Path(scratch)
                )
            except NodeError:  # it exits with the number of conflicts, or says that it is no text
                return None


def _lay_out(folder: Path, blobs: Blobs, sides: Sequence[Content]) -> tuple[str, ...]:
    names = ("ours", "base", "theirs")
    for name, content in zip(names, sides, strict=True):
        (folder / name).write_bytes(blobs.read(content))
    return names


async def _check(
    node: NodeParts, settings: WorkspaceSettings, run: RunFolder, merged: Bundle, subdir: str, timeout_ms: int
) -> tuple[tuple[CheckResult, ...], tuple[str, ...]]:
    """The workspace's checks on the tree as it is now, with the merged changes; how each stood without."""
    request = PrepareRequest(
        run_id=run.folder.name, workspace_ref=settings.ref, subdir=subdir, timeout_ms=timeout_ms
    )
    prepared = await node.preparer.prepare(settings, request)
    if not prepared.checks:
        return (), ()
    results: list[CheckResult] = []
    broken: list[str] = []
    async with node.preparer.scratches.opened(prepared) as checkout:
        await checkout.call("take_over", _told(merged, run))

        async def run_once(check: CheckDefinition) -> CheckRun:
            call_id = f"check/{check.id}"
            limit_ms = min(timeout_ms, settings.max_command_timeout_ms)
            return await run_check(checkout, check, call_id=call_id, timeout_ms=limit_ms, settings=settings)

        for check, state in _with_states(prepared):
            result, done = await judge(check, state, gate=settings.gate, run=run_once)
            if result.gate == "worse":
                broken.append(describe_broken(check, state, done))
            results.append(result)
    return tuple(results), tuple(broken)


def _with_states(prepared: PreparedWorkspace) -> list[tuple[CheckDefinition, int | None]]:
    return [(check, state.base_exit) for check, state in prepared.checks]


def _told(merged: Bundle, run: RunFolder) -> dict[str, object]:
    """The changes as the keeper takes them."""
    changes = [
        {"path": change.path, "base": _side(change.base), "result": _side(change.result)}
        for change in merged.changes.changes
    ]
    return {"changes": changes, "blobs": str(run.folder / "blobs")}


def _side(content: Content | None) -> dict[str, str] | None:
    return None if content is None else {"mode": content.mode, "sha256": content.sha256}
