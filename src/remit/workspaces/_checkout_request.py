"""Which checkout to open, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remit.workspaces._masking import Masker, no_masker
from remit.workspaces._probe import IsolationWanted, SandboxWanted
from remit.workspaces._shelf import Toolchains
from remit.workspaces.keeper._plan import Limits

__all__ = ["CheckoutRequest", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRequest:
    """Which checkout to open, and how."""

    checkout_id: str
    generation: int = 1
    root: Path
    """The workspace root, absolute; commands see the checkout's tree at this path."""
    lower: Path | None = None
    """The folder that the checkout starts from, only read; None: the root as it is."""
    storage: Path
    """The checkout's own folder, `<data>/checkouts/<id>`; an existing one is opened again."""
    data: Path
    """The node's data folder; commands never see it."""
    isolation: IsolationWanted = "auto"
    sandbox: SandboxWanted = "auto"
    allow_unconfined: bool = False
    is_git: bool = False
    """A git work tree may be copied whatever its size."""
    git_dir: Path | None = None
    """Shown as the tree's `.git`; None: it is left as it is."""
    git_template: Path | None = None
    """What `git_dir` is made from, where it isn't there, when something first looks into the tree."""
    object_stores: tuple[Path, ...] = ()
    """Folders that `git_dir` reads objects from; commands see them read-only, at their own paths."""
    carry: tuple[str, ...] = ()
    """Folders of the root that another base lacks: `.venv`, `node_modules`."""
    read_only: tuple[str, ...] = ()
    """Paths in the tree that neither commands nor file operations may change."""
    setup: Path | None = None
    """Folder of what setup commands have made on such a base; None: nothing."""
    keep_home: bool = False
    """Whether its home folder stays when it is kept: a setup's own."""
    masker: Masker = field(default_factory=no_masker)
    """Takes secrets out of whatever its commands and file operations answer."""
    toolchains: Toolchains = field(default_factory=Toolchains)
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Allow-listed variables for all commands."""
    limits: Limits = field(default_factory=Limits)
