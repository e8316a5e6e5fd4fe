"""Reading `remit.toml`: which files count, and what each says."""

from __future__ import annotations

import errno
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.config._folders import user_config_file
from remit.errors import ConfigError

FILE_NAME = "remit.toml"
_LARGEST_BYTES = 1 << 20
_ISNT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """One file's settings, as they stand in it."""

    path: Path
    text: bytes
    settings: dict[str, Any]


def read_config_file(path: Path) -> ConfigFile:
    """Read and parse one file.

    Raises:
        ConfigError: It can't be read, or isn't TOML; the message names the line.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path} is larger than 1 MiB, which no settings file needs to be")
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from None
    try:
        settings = tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    return ConfigFile(path=path, text=text, settings=settings)


def find_config_files(
    *, named: Path | None, folder: Path, environment: Mapping[str, str]
) -> tuple[ConfigFile, ...]:
    """The files that count, weakest first: the user's own, then the nearest one upwards from `folder`.

    A file named by hand replaces the search upwards.

    Raises:
        ConfigError: One of them can't be read or parsed, or the named one isn't there.
    """
    files: list[ConfigFile] = []
    own = user_config_file(environment)
    if _is_file(own, advice="; set HOME or XDG_CONFIG_HOME to a folder of yours"):
        files.append(read_config_file(own))
    nearest = named if named is not None else _nearest(folder)
    if named is not None and not _is_file(named):
        raise ConfigError(f"{named} isn't there; name an existing file with --config")
    if nearest is not None and all(not _same(nearest, file.path) for file in files):
        files.append(read_config_file(nearest.absolute()))
    return tuple(files)


def _is_file(path: Path, *, advice: str = "") -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:  # such as a HOME that is another user's, after `su` or `sudo`
        if error.errno in _ISNT_THERE:
            return False
        raise ConfigError(f"{path} can't be read: {error.strerror or error}{advice}") from None


def _nearest(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        try:
            if (place / FILE_NAME).is_file():
                return place / FILE_NAME
        except OSError:
            continue
    return None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
