"""A workspace made ready for a run, and what its checkouts are made from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remit.contract import CheckState, Isolation, SandboxLevel
from remit.workspaces._base import BasePin, Listing
from remit.workspaces._brief import Brief
from remit.workspaces._checkout_request import CheckoutRequest
from remit.workspaces._checks import CheckDefinition
from remit.workspaces._continuing import KeptCheckout
from remit.workspaces._pinning import Bases
from remit.workspaces._secrets import WorkspaceSecrets
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._toolchains import Toolchains

__all__ = ["BaseReader", "PreparedWorkspace", "checkout_request"]

_READ_AT_MOST = 1 << 20
# The tree may belong to another user than the one that commands run as; they may look at it all the same.
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedWorkspace:
    """All that a run's checkout is made from."""

    settings: WorkspaceSettings
    pin: BasePin
    listing: Listing
    subdir: str
    """The working folder, from the root."""
    isolation: Isolation
    sandbox: SandboxLevel
    toolchains: Toolchains
    checks: tuple[tuple[CheckDefinition, CheckState], ...]
    brief: Brief
    notes: tuple[str, ...]
    cached: bool
    setup: Path | None = None
    """Folder of what setup commands have made on it; None: there are none."""
    secrets: WorkspaceSecrets = field(default_factory=WorkspaceSecrets)
    kept: KeptCheckout | None = None
    """What the checkout starts with; None: with the base."""

    @property
    def continues(self) -> str | None:
        """The run whose work it goes on with."""
        return self.kept.run_id if self.kept is not None and not self.kept.open else None

    @property
    def parent(self) -> str | None:
        """The run that it is a child of."""
        return self.kept.run_id if self.kept is not None and self.kept.open else None


class BaseReader:
    """Reads files of a base: from git's objects where there are any, so that they are the pinned bytes."""

    def __init__(self, bases: Bases, pin: BasePin, listing: Listing) -> None:
        self._bases = bases
        self._pin = pin
        self._listing = listing

    async def read(self, path: str) -> bytes:
        """The bytes of a base file, bounded; of a link, its target; empty where it can't be read."""
        entry = self._listing.get(path)
        if entry is None:
            return b""
        if entry.blob is not None and self._pin.private_git is not None:
            git_dir = Path(self._pin.private_git)
            return (await self._bases.git.run("cat-file", "blob", entry.blob, git_dir=git_dir))[
                :_READ_AT_MOST
            ]
        return await asyncio.to_thread(_read_file, Path(self._pin.lower) / path)

    async def read_text(self, path: str) -> str:
        """The same as text, whatever the bytes are."""
        return (await self.read(path)).decode("utf-8", "replace")


def _read_file(path: Path) -> bytes:
    try:
        if path.is_symlink():
            return os.fsencode(os.readlink(path))
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_READ_AT_MOST)
    except OSError:
        return b""


def checkout_request(
    workspace: PreparedWorkspace,
    *,
    checkout_id: str,
    generation: int,
    data: Path,
    environment: Mapping[str, str],
    allow_unconfined: bool,
) -> CheckoutRequest:
    """What a keeper needs to open a checkout of a prepared base."""
    pin, settings = workspace.pin, workspace.settings
    storage = data / "checkouts" / checkout_id
    template = Path(pin.private_git) if pin.private_git and workspace.isolation != "in_place" else None
    git_dir = storage / "git" if template is not None else None
    return CheckoutRequest(
        checkout_id=checkout_id,
        generation=generation,
        root=Path(pin.root),
        lower=Path(pin.lower),
        storage=storage,
        data=data,
        isolation=workspace.isolation,
        sandbox=settings.sandbox,
        allow_unconfined=allow_unconfined,
        is_git=pin.has_repository,
        git_dir=git_dir,
        git_template=template,
        read_only=(".git",) if workspace.isolation == "in_place" and pin.has_repository else (),
        object_stores=tuple(Path(store) for store in pin.object_stores) if git_dir else (),
        carry=_carried(pin, settings),
        setup=workspace.setup if workspace.isolation != "in_place" else None,
        masker=workspace.secrets.masker,
        toolchains=workspace.toolchains,
        environment=_GIT_ENVIRONMENT | allowed_environment(settings, environment),
    )


def allowed_environment(settings: WorkspaceSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """The node's own variables that commands of a workspace get."""
    return {name: environment[name] for name in settings.environment_allowlist if name in environment}


def _carried(pin: BasePin, settings: WorkspaceSettings) -> tuple[str, ...]:
    """Ignored folders of the root that a base laid out elsewhere lacks: the named ones, wherever they lie."""
    if pin.lower == pin.root:
        return ()
    named = [path for path in pin.ignored_folders if path.rpartition("/")[2] in settings.carry]
    return tuple(dict.fromkeys([*settings.carry, *named]))
