"""What an operation may need to know of the checkout that it works in."""

from __future__ import annotations

from dataclasses import dataclass

from remit.workspaces.keeper._storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutContext:
    """The open checkout of this keeper. All paths are valid in the keeper's own mount namespace."""

    root_fd: int
    """The merged tree, as commands see it at `root`."""
    root: str
    """The workspace root. Here, in the keeper, this path still shows the user's own tree: read it only."""
    lower: str
    """The base's folder, unchanged: the bytes that the checkout started from."""
    storage: Storage
    isolation: str
    """What was made in the end: `overlay`, `copy` or `in_place`."""


_current: CheckoutContext | None = None


def current_checkout() -> CheckoutContext:
    """The checkout that this process holds or works for.

    Raises:
        LookupError: none is open in this process.
    """
    if _current is None:
        raise LookupError("no checkout is open in this process")
    return _current


def set_current_checkout(context: CheckoutContext | None) -> None:
    """Said once, when the keeper has opened its checkout; None: none is."""
    global _current  # noqa: PLW0603  a keeper holds exactly one checkout, for its whole life
    _current = context
