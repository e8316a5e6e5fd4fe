"""Keeps secrets out of a patch: who wrote one into a file is told so, and the patch can't be delivered."""

from __future__ import annotations

from remit.contract import Snapshot
from remit.workspaces._masking import Masker
from remit.workspaces._snapshot import Bundle
from remit.workspaces.keeper._tree import show_path

__all__ = ["without_secrets"]


def without_secrets(answer: Snapshot, bundle: Bundle, masker: Masker) -> Snapshot:
    """The snapshot with its secrets masked; a path that holds one is frozen, and flagged. Blocking.

    The bytes of the checkout stay as they are: what the answer shows is what models and people read.
    """
    if not masker:
        return answer
    found: dict[str, tuple[str, ...]] = {}
    for change in bundle.changes.changes:
        data = b"" if change.result is None else bundle.blobs.read(change.result)
        names = masker.names_in(data)
        if names:
            found[show_path(change.path)] = names
    if not found and not masker.names_in(answer.patch.encode("utf-8", "surrogatepass")):
        return answer
    flags = [f"secret:{path} ({', '.join(names)})" for path, names in found.items()]
    return answer.model_copy(
        update={
            "patch": masker.mask(answer.patch),
            "frozen": tuple(dict.fromkeys((*answer.frozen, *found))),
            "flags": (*answer.flags, *flags),
        }
    )
