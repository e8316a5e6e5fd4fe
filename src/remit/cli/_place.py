"""Where a run works: which folder, which workspace, which settings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.admission import STAGES_OF, Binding
from remit.config import (
    Config,
    find_repository_root,
    load_config,
    with_default_model,
)
from remit.contract import Profile, RunRequest
from remit.errors import ConfigError, InvalidRequest, NotFound
from remit.workspaces import WorkspaceSettings, check_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The settings in force, and the workspace that the run gets."""

    config: Config
    workspace: WorkspaceSettings
    subdir: str | None
    """The working folder, relative to the root; None: the root."""
    is_git: bool
    notes: tuple[str, ...] = ()
    """What the user should know of how it was chosen."""


def find_place(
    *,
    wanted: str | None,
    config_file: Path | None,
    overrides: Mapping[str, Any] | None = None,
    allow_unconfined: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Place:
    """The workspace for a command, and the settings that hold there.

    Args:
        wanted: A folder, or the ref of a configured workspace; None: the folder one is in.
        config_file: Named by hand.
        overrides: Settings from flags, nested as in a file.
        allow_unconfined: Whether sandbox level `none` was allowed by hand.
        environment: Variables.

    Raises:
        ConfigError: The settings are wrong, or the folder can't be worked on.
        NotFound: No such folder, and no such workspace.
    """
    here = start_folder()
    named = folder_named(wanted, here)
    folder = named or here
    repository = find_repository_root(folder)
    config = load_config(
        environment=environment,
        folder=here,
        repository=repository,
        named=config_file,
        overrides=overrides,
        allow_unconfined=allow_unconfined,
    ).as_owner()
    if named is None and wanted is not None:
        return _configured(config, wanted)
    root = repository or folder
    config, workspace = config.with_folder(root)
    subdir = str(folder.relative_to(root)) if folder != root else None
    notes = (
        () if repository else (f"{root} isn't a git repository: the run starts from its files as they are",)
    )
    return Place(
        config=config, workspace=workspace, subdir=subdir, is_git=repository is not None, notes=notes
    )


def start_folder() -> Path:
    """The current folder, without links.

    Raises:
        ConfigError: It is gone.
    """
    try:
        return Path(os.path.realpath(Path.cwd()))
    except OSError:
        raise ConfigError("the current folder is gone; change to another one") from None


def folder_named(wanted: str | None, here: Path) -> Path | None:
    """The folder that `-w` names, without links; None where it doesn't name one.

    Raises:
        InvalidRequest: It names a file, or can't be looked at.
    """
    if wanted is None:
        return None
    path = here / Path(wanted).expanduser()
    try:
        if path.is_dir():
            return Path(os.path.realpath(path))
        if path.exists():
            raise InvalidRequest(f"{wanted} is a file; name the folder to work in with -w", param="workspace")
    except OSError as error:
        raise InvalidRequest(
            f"{wanted} can't be looked at: {error.strerror or error}", param="workspace"
        ) from None
    return None


def _configured(config: Config, ref: str) -> Place:
    workspace = config.workspaces.get(ref)
    if workspace is None:
        known = ", ".join(sorted(config.workspaces)) or "none is configured"
        raise NotFound(
            f"no folder and no workspace `{ref}` (workspaces: {known}); name an existing folder with -w",
            param="workspace",
        )
    is_git = find_repository_root(workspace.root) is not None
    return Place(config=config, workspace=workspace, subdir=None, is_git=is_git)


def require_usable(place: Place, *, applies: bool) -> None:
    """Refuse what can't work before anything is started.

    Args:
        place: Where the run would work.
        applies: Whether its result is to be applied there.

    Raises:
        ConfigError: The folder can't be a workspace, or git is missing.
    """
    check_root(place.workspace.root)
    if place.is_git and shutil.which("git", path=place.config.environment.get("PATH")) is None:
        raise ConfigError("git isn't installed or not on PATH; install it, or name another folder with -w")
    if applies and not os.access(place.workspace.root, os.W_OK):
        raise ConfigError(
            f"{place.workspace.root} can't be written to, so nothing could be applied; add --patch-only"
        )


def with_model(place: Place, request: RunRequest) -> Place:
    """The same place with a model for every stage that the request leaves open.

    Raises:
        ConfigError: No model is configured, named, or found.
    """
    if request.model is not None or not _needs_default(place.config, request):
        return place
    config = with_default_model(place.config)
    return replace(place, config=config, notes=(*place.notes, *config.notes))


def _needs_default(config: Config, request: RunRequest) -> bool:
    binding = find_binding(config, request)
    if binding is None:
        return False  # admission says so
    for kind in STAGES_OF[request.profile or binding.profile]:
        wish = request.stages.get(kind)
        bound = binding.stage(kind)
        if (wish is None or wish.model is None) and bound.model is None and bound.pool in (None, "default"):
            return "default" not in config.pools
    return False


def kinds_asked(config: Config, request: RunRequest) -> frozenset[str]:
    """The kinds of provider that the run will ask, as far as the settings tell; admission says the rest."""
    with suppress(ConfigError):
        tables = [config.find_provider(model.partition(":")[0]) for model in models_of(config, request)]
        return frozenset(table.kind for table in tables if table is not None)
    return frozenset()


def find_binding(config: Config, request: RunRequest) -> Binding | None:
    """The binding that a request means."""
    name = request.binding or config.default_binding
    return config.bindings.get(name) if name is not None else None


def models_of(config: Config, request: RunRequest) -> tuple[str, ...]:
    """The models that the run will ask, each once, in the order of its stages."""
    binding = find_binding(config, request)
    if binding is None:
        return ()
    profile: Profile = request.profile or binding.profile
    found: list[str] = []
    for kind in STAGES_OF[profile]:
        wish = request.stages.get(kind)
        model = (wish.model if wish is not None else None) or request.model
        if model is None:
            bound = binding.stage(kind)
            pool = config.get_pool(bound)
            model = pool.members[0].model
        found.append(model)
    return tuple(dict.fromkeys(found))
