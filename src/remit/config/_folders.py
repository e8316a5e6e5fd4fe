"""Where Remit keeps its data, and where a user keeps settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from remit.config._repository import find_repository_root
from remit.errors import ConfigError, RemitError
from remit.workspaces import check_root


def home_folder(environment: Mapping[str, str]) -> Path:
    """The user's home folder.

    Raises:
        ConfigError: Nothing says where it is.
    """
    home = environment.get("HOME")
    if home:
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError("no home folder is known; set HOME or REMIT_HOME") from None


def data_folder(environment: Mapping[str, str]) -> Path:
    """`$REMIT_HOME`, else `$XDG_DATA_HOME/remit`, else `~/.local/share/remit`."""
    if named := environment.get("REMIT_HOME"):
        return Path(named).absolute()
    if base := environment.get("XDG_DATA_HOME"):
        return Path(base).absolute() / "remit"
    return home_folder(environment) / ".local" / "share" / "remit"


def user_config_file(environment: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/remit/remit.toml`, else `~/.config/remit/remit.toml`; it needn't exist."""
    if base := environment.get("XDG_CONFIG_HOME"):
        return Path(base).absolute() / "remit" / "remit.toml"
    return home_folder(environment) / ".config" / "remit" / "remit.toml"


def refuse_data_inside(folder: Path, roots: Iterable[Path]) -> None:
    """Refuse a data folder inside a workspace's repository, before anything of it is made.

    A folder that can't be a workspace anyway isn't looked at: what is said of it is more to the point.

    Raises:
        ConfigError: It lies there: a run would then see, and be able to change, what is kept of all runs.
    """
    for root in roots:
        repository = find_repository_root(root) or root
        try:
            check_root(repository)
        except RemitError:
            continue
        if _holds(repository, folder):
            raise ConfigError(
                f"the data folder {folder} lies inside {repository}; set REMIT_HOME to a folder outside",
                param="REMIT_HOME",
            )


def _holds(root: Path, folder: Path) -> bool:
    """Whether a folder, which needn't exist, is or lies below another one: by themselves, not by name."""
    wanted = root.stat()
    place = folder.resolve()
    for parent in (place, *place.parents):
        try:
            if os.path.samestat(parent.stat(), wanted):
                return True
        except OSError:
            continue
    return False


def make_data_folder(folder: Path) -> Path:
    """Make the data folder, readable by its owner alone.

    Raises:
        ConfigError: It can't be made, or isn't a folder one can write to.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(
            f"the data folder {folder} can't be used ({why}); set REMIT_HOME to a folder you can write to"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"the data folder {folder} isn't writable; set REMIT_HOME to a folder you can write to"
        )
    return folder
