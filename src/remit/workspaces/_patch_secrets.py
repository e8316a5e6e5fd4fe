"""Keeps secrets out of a patch: who wrote one into a file is told so, and the patch can't be delivered."""

from __future__ import annotations

import os

from remit.contract import ChangedPath, Snapshot
from remit.workspaces._masking import Masker
from remit.workspaces._snapshot import Bundle, RunFolder, keep_secret_paths
from remit.workspaces.keeper._tree import show_path

__all__ = ["without_secrets"]


def without_secrets(answer: Snapshot, run: RunFolder, bundle: Bundle, masker: Masker) -> Snapshot:
    """The snapshot with its secrets masked; a path that holds one is frozen, and flagged. Blocking.

    The bytes of the checkout stay as they are: what the answer shows is what models and people read. Which
    paths hold one is kept beside the changes, for whoever delivers them later and doesn't know the secrets.
    """
    if not masker:
        return answer
    found: dict[str, tuple[str, ...]] = {}
    for change in bundle.changes.changes:
        data = b"" if change.result is None else bundle.blobs.read(change.result)
        names = (*masker.names_in(data), *masker.names_in(os.fsencode(change.path)))
        if names:
            found[change.path] = tuple(dict.fromkeys(names))
    shown = {path: masker.mask(show_path(path)) for path in found}
    keep_secret_paths(run, bundle, shown)
    flags = [f"secret:{shown[path]} ({', '.join(names)})" for path, names in found.items()]
    masked = _mask_all((*answer.frozen, *shown.values()), masker)
    return answer.model_copy(
        update={
            "patch": masker.mask(answer.patch) if _tells(answer.patch, masker) else answer.patch,
            "paths": tuple(_mask_path(path, masker) for path in answer.paths),
            "protected": _mask_all(answer.protected, masker),
            "frozen": tuple(dict.fromkeys(masked)),
            "flags": _mask_all((*answer.flags, *flags), masker),
            "leftovers": _mask_all(answer.leftovers, masker),
        }
    )


def _tells(patch: str, masker: Masker) -> bool:
    return bool(masker.names_in(patch.encode("utf-8", "surrogatepass")))


def _mask_all(texts: tuple[str, ...], masker: Masker) -> tuple[str, ...]:
    return tuple(masker.mask(text) for text in texts)


def _mask_path(path: ChangedPath, masker: Masker) -> ChangedPath:
    masked = masker.mask(path.path)
    return path if masked == path.path else path.model_copy(update={"path": masked})
