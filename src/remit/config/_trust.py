"""What a `remit.toml` inside the repository that is worked on may say.

Whoever can push to a repository can write that file, and the agent can too. Unless the user trusts
exactly these bytes (`remit trust`), it may only narrow and describe: prompts, narrower limits,
commands, checks, setup, pool names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from remit.config._files import ConfigFile
from remit.errors import ConfigError
from remit.primitives import StrictJsonError, dump_json, load_json

_STAGE_KEYS: Final = frozenset({"pool"})
_BINDING_KEYS: Final = frozenset({"workspace", "instructions", "limits"})
_WORKSPACE_KEYS: Final = frozenset(
    {"ref", "root", "operations", "shell", "commands", "checks", "setup", "freeze", "protected"}
)
_STAGES: Final = frozenset({"plan", "work", "review"})


def is_inside(path: Path, repository: Path) -> bool:
    """Whether a file lies inside a repository, by the folders themselves and not by their names."""
    try:
        root = os.stat(repository)
        return any(os.path.samestat(os.stat(parent), root) for parent in path.resolve().parents)
    except OSError:
        return False


def refuse_untrusted(file: ConfigFile, *, trusted: bool) -> None:
    """Refuse what an untrusted file inside the repository may not set.

    Raises:
        ConfigError: It sets such a key; the message names it and the way out.
    """
    if trusted:
        return
    for path in _forbidden(file.settings):
        raise ConfigError(
            f"{file.path}: `{path}` can't be set by a file inside the repository that is worked on; "
            f"read the file, then trust it with `remit trust {file.path}`, "
            "or move the setting to your own config",
            param=path,
        )


def untrusted_keys(file: ConfigFile) -> tuple[str, ...]:
    """The dotted paths of what the file sets that count only when it is trusted."""
    return tuple(_forbidden(file.settings))


def _forbidden(settings: dict[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if key == "bindings":
            yield from _forbidden_in(value, _binding_paths)
        elif key == "nodes":
            yield from _forbidden_in(value, _node_paths)
        else:
            yield key


def _forbidden_in(tables: object, inner: Any) -> Iterator[str]:
    if not isinstance(tables, dict):
        return  # the schema says what is wrong with it
    for name, table in cast("dict[str, object]", tables).items():
        if isinstance(table, dict):
            yield from inner(name, table)


def _binding_paths(name: str, table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key in _STAGES and isinstance(value, dict):
            stage = cast("dict[str, object]", value)
            yield from (f"bindings.{name}.{key}.{k}" for k in stage if k not in _STAGE_KEYS)
        elif key not in _BINDING_KEYS:
            yield f"bindings.{name}.{key}"


def _node_paths(name: str, table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key != "workspaces" or not isinstance(value, list):
            yield f"nodes.{name}.{key}"
            continue
        for number, workspace in enumerate(cast("list[object]", value)):
            if isinstance(workspace, dict):
                keys = cast("dict[str, object]", workspace)
                yield from (f"nodes.{name}.workspaces.{number}.{k}" for k in keys if k not in _WORKSPACE_KEYS)


class TrustStore:
    """Which files the user has read and trusts: by path and hash, in the data folder."""

    def __init__(self, data: Path) -> None:
        self._file = data / "trusted.json"

    def is_trusted(self, file: ConfigFile) -> bool:
        """Whether exactly these bytes at this path are trusted."""
        return self._load().get(str(file.path.resolve())) == _hash(file.text)

    def trust(self, file: ConfigFile) -> None:
        """Remember these bytes; a later change makes the file untrusted again."""
        trusted = self._load()
        trusted[str(file.path.resolve())] = _hash(file.text)
        fresh = self._file.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(dump_json(trusted, sort_keys=True))
        fresh.replace(self._file)

    def _load(self) -> dict[str, str]:
        try:
            value = load_json(self._file.read_bytes())
        except (OSError, StrictJsonError):
            return {}
        return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - what we wrote


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
