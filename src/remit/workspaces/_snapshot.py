"""A run's changes at one moment, kept on disk: what a review looks at, and what a delivery takes."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.errors import NodeError
from remit.primitives import is_run_id
from remit.workspaces._base import BasePin, Listing
from remit.workspaces._changes import Blobs, Change, Changes
from remit.workspaces._collect import IgnoreMemory, collect_changes
from remit.workspaces._git import Git
from remit.workspaces._patch import Patch, PatchFolders, PathCounts, write_patch
from remit.workspaces._private_git import publish_folder
from remit.workspaces.keeper._tree import Scan

__all__ = ["Bundle", "RunFolder", "keep_bundle", "keep_secret_paths", "take_snapshot"]

_SECRETS = "secrets.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What the node keeps of one run: `<data>/runs/<run id>`."""

    folder: Path

    @classmethod
    def of(cls, data: Path, run_id: str) -> RunFolder:
        """The folder of a run.

        Raises:
            NodeError: The id can't be a folder's name.
        """
        if not is_run_id(run_id):
            raise NodeError("that isn't a run id", reason="refused")
        return cls(data / "runs" / run_id)

    @property
    def blobs(self) -> Blobs:
        """The bytes of changed files, before and after."""
        return Blobs(self.folder / "blobs")

    def bundle(self, content_hash: str) -> Path:
        """Where the changes of that hash lie."""
        if not content_hash.isalnum():
            raise NodeError("that isn't a content hash", reason="refused")
        return self.folder / "changes" / content_hash

    def load(self, content_hash: str) -> Bundle:
        """The changes of that hash.

        Raises:
            NodeError: They aren't kept here, or aren't what the hash says.
        """
        folder = self.bundle(content_hash)
        try:
            changes = Changes.from_json((folder / "changes.json").read_text())
            patch = (folder / "patch").read_bytes()
            counts = json.loads((folder / "counts.json").read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NodeError("no such changes are kept for this run", reason="lost") from error
        if changes.content_hash != content_hash:
            raise NodeError("the changes kept for this run aren't those that were reviewed", reason="refused")
        held = _read_secret_paths(folder)
        return Bundle(changes=changes, patch=_patch(patch, counts), blobs=self.blobs, secret_paths=held)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Changes, their bytes, and the patch that they make."""

    changes: Changes
    patch: Patch
    blobs: Blobs
    secret_paths: Mapping[str, str] = field(default_factory=dict[str, str])
    """Paths that were found to hold a secret of the workspace, none of which may be delivered; and how each
    may be shown, since a secret may stand in a name."""

    @property
    def content_hash(self) -> str:
        """What a review is bound to."""
        return self.changes.content_hash

    @property
    def moved(self) -> tuple[Change, ...]:
        """Changes whose base the user's tree no longer held."""
        return tuple(change for change in self.changes.changes if change.moved)


async def take_snapshot(
    git: Git,
    run: RunFolder,
    *,
    pin: BasePin,
    listing: Listing,
    scan: Scan,
    result: Path,
    folders: PatchFolders,
    ignored: IgnoreMemory,
    told: Callable[[Changes], Changes] = lambda changes: changes,
    last: dict[str, Patch] | None = None,
) -> Bundle:
    """Collect what a checkout holds and keep it. The same content is kept once.

    Args:
        git: The program.
        run: Where it is kept.
        pin: The base.
        listing: Its files.
        scan: What was found in the checkout.
        result: Where the checkout's files lie.
        folders: Where patches are written.
        ignored: What is known of this checkout's ignored files.
        told: Makes of all that differs from the base what the snapshot is to tell.
        last: The patch that this process kept last for the run, by content hash; noted here. None: unknown.

    Raises:
        TreeTooLarge: More changed than a patch may hold.

    Cancellation: nothing is kept but stray bytes.
    """
    blobs = run.blobs
    changes = await collect_changes(
        git, pin=pin, listing=listing, scan=scan, result=result, blobs=blobs, memory=ignored
    )
    changes = told(changes)
    content_hash = changes.content_hash
    patch = last.get(content_hash) if last is not None else None
    if patch is None and changes.changes:
        patch = await asyncio.to_thread(_find_patch, run, content_hash)
    # What was skipped or ignored may differ though the patch is the same; the newest is told.
    if patch is None:
        patch = await write_patch(git, changes.changes, blobs, folders)
        await asyncio.to_thread(_keep_once, run, Bundle(changes=changes, patch=patch, blobs=blobs))
    if last is not None:  # a work stage, its review and the gate mostly see the same
        last.clear()
        last[content_hash] = patch
    return Bundle(changes=changes, patch=patch, blobs=blobs)


def _find_patch(run: RunFolder, content_hash: str) -> Patch | None:
    return run.load(content_hash).patch if run.bundle(content_hash).is_dir() else None


def _keep_once(run: RunFolder, bundle: Bundle) -> None:
    if not run.bundle(bundle.content_hash).is_dir():
        keep_bundle(run, bundle)


def keep_bundle(run: RunFolder, bundle: Bundle) -> None:
    """Put changes and their patch where `RunFolder.load` finds them."""
    run.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(prefix="scratch-", dir=run.folder))
    try:
        (made / "changes.json").write_text(bundle.changes.to_json())
        (made / "patch").write_bytes(bundle.patch.text)
        (made / "counts.json").write_text(json.dumps(_counts(bundle.patch)))
        if not publish_folder(made, run.bundle(bundle.content_hash)):
            shutil.rmtree(made, ignore_errors=True)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def keep_secret_paths(run: RunFolder, bundle: Bundle, paths: Mapping[str, str]) -> None:
    """Remember which of a kept bundle's paths hold a secret, and how each may be shown. Blocking.

    What was found once stays: the same bytes are no less secret for a node that isn't given the secret.
    """
    folder = run.bundle(bundle.content_hash)
    known = _read_secret_paths(folder)
    if paths.keys() - known.keys():
        unfinished = folder / f"{_SECRETS}.unfinished"
        unfinished.write_text(json.dumps({**known, **paths}))
        unfinished.rename(folder / _SECRETS)


def _read_secret_paths(folder: Path) -> dict[str, str]:
    """The paths that hold a secret.

    Raises:
        NodeError: They can't be read.
    """
    try:
        return {str(path): str(shown) for path, shown in json.loads((folder / _SECRETS).read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise NodeError("which files of this run hold a secret can't be read", reason="lost") from error


def _counts(patch: Patch) -> dict[str, object]:
    paths = {path: (entry.insertions, entry.deletions, entry.binary) for path, entry in patch.paths.items()}
    return {
        "files": patch.files,
        "insertions": patch.insertions,
        "deletions": patch.deletions,
        "paths": paths,
    }


def _patch(text: bytes, counts: Mapping[str, Any]) -> Patch:
    paths = {path: PathCounts(*entry) for path, entry in counts["paths"].items()}
    return Patch(text, counts["files"], counts["insertions"], counts["deletions"], paths)
