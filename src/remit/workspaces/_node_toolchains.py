"""Finds Node for a workspace: what nvm, fnm or Volta hold, and what package managers have downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from remit.primitives import StrictJsonError, load_json
from remit.workspaces._project_marks import by_number, choose_version, has_marks, read_small, read_upwards
from remit.workspaces._shelf import Shelf

__all__ = ["find_node", "show_node_folder"]

_MARKS: Final = ("package.json", ".nvmrc", ".node-version", "deno.json", "bun.lockb", "bun.lock")


def find_node(shelf: Shelf, *, environ: Mapping[str, str], folders: Sequence[Path]) -> None:
    """Shows the Node that the project asks for, and the caches of its package managers.

    Args:
        shelf: Takes what is found.
        environ: Of whoever works in the workspace.
        folders: The folders on PATH.
    """
    if not has_marks(shelf.root, _MARKS):
        return
    volta = _folder(environ, "VOLTA_HOME", shelf.home / ".volta")
    if volta / "bin" in folders:
        _show_volta(shelf, volta)
    elif not any(_is_managed(shelf, folder, environ) for folder in folders):
        there = any(os.access(folder / "node", os.X_OK) for folder in folders)
        _show_version(shelf, environ, stated_only=there)
    for cache in _caches(shelf, environ):
        shelf.show_cache(cache, why="packages that were downloaded")


def show_node_folder(shelf: Shelf, folder: Path, *, environ: Mapping[str, str]) -> bool:
    """Shows a folder that a version manager of Node has put on PATH, with the installation around it."""
    if not _is_managed(shelf, folder, environ):
        return False
    # fnm's own folder on PATH is a link made for one shell; the installation stays.
    real = Path(os.path.realpath(folder))
    if shelf.show(real.parent, kind="node", why="on PATH"):
        shelf.add_to_path(real)
    return True


def _is_managed(shelf: Shelf, folder: Path, environ: Mapping[str, str]) -> bool:
    real = Path(os.path.realpath(folder))
    homes = (
        _folder(environ, "NVM_DIR", shelf.home / ".nvm") / "versions" / "node",
        *(root / "node-versions" for root in _fnm_homes(shelf, environ)),
    )
    return real.name == "bin" and any(real.is_relative_to(os.path.realpath(home)) for home in homes)


def _folder(environ: Mapping[str, str], name: str, default: Path) -> Path:
    said = environ.get(name, "")
    return Path(said) if said.startswith("/") else default


def _fnm_homes(shelf: Shelf, environ: Mapping[str, str]) -> tuple[Path, ...]:
    default = (shelf.home / ".local" / "share" / "fnm", shelf.home / ".fnm")
    return tuple(dict.fromkeys((_folder(environ, "FNM_DIR", default[0]), *default)))


def _show_version(shelf: Shelf, environ: Mapping[str, str], *, stated_only: bool) -> None:
    """Shows what the project asks for; where it asks for nothing, what is on PATH goes before a default."""
    wanted = read_upwards(shelf.root, ".nvmrc", ".node-version")
    if stated_only and not wanted:
        return
    for installation, why in _installations(shelf, environ, wanted):
        if shelf.show(installation, kind="node", why=why):
            shelf.add_to_path(installation / "bin")
            return


def _installations(shelf: Shelf, environ: Mapping[str, str], wanted: str) -> Iterator[tuple[Path, str]]:
    """Where the version that the project asks for is installed, else the manager's default."""
    nvm = _folder(environ, "NVM_DIR", shelf.home / ".nvm")
    version = _choose(nvm / "versions" / "node", wanted or _nvm_default(nvm))
    if version is not None:
        yield nvm / "versions" / "node" / version, f"nvm, {version}"
    for fnm in _fnm_homes(shelf, environ):
        version = _choose(fnm / "node-versions", wanted) if wanted else None
        if version is not None:
            yield fnm / "node-versions" / version / "installation", f"fnm, {version}"
        default = Path(os.path.realpath(fnm / "aliases" / "default"))
        if default.is_relative_to(os.path.realpath(fnm)):
            yield default, "fnm, its default"


def _nvm_default(nvm: Path) -> str:
    """What nvm takes without being asked; an alias may name another one."""
    name = "default"
    for _ in range(4):
        said = read_small(nvm / "alias" / name).strip()
        if not said or ".." in said or said.startswith("/"):
            return "" if name == "default" else name
        name = said
    return name


def _choose(folder: Path, wanted: str) -> str | None:
    installed = _names(folder)
    if wanted in ("node", "stable", "latest"):
        return max(installed, key=by_number, default=None)
    return choose_version(installed, wanted)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if os.path.isdir(entry))
    except OSError:
        return []


def _show_volta(shelf: Shelf, volta: Path) -> None:
    """Shows Volta's tools themselves; its shims would need the whole of Volta, and change it."""
    pinned = _table(_json(shelf.root / "package.json").get("volta"))
    platform = _json(volta / "tools" / "user" / "platform.json")
    default = _table(platform.get("node"))
    wanted = {
        "node": pinned.get("node") or default.get("runtime"),
        "npm": pinned.get("npm") or default.get("npm"),
        "pnpm": pinned.get("pnpm") or platform.get("pnpm"),
        "yarn": pinned.get("yarn") or platform.get("yarn"),
    }
    for tool, version in wanted.items():
        folder = volta / "tools" / "image" / tool
        chosen = choose_version(_names(folder), version) if isinstance(version, str) else None
        if chosen is not None and shelf.show(folder / chosen, kind="node", why=f"Volta, {tool} {chosen}"):
            shelf.add_to_path(folder / chosen / "bin")


def _json(path: Path) -> dict[str, Any]:
    try:
        return _table(load_json(read_small(path)))
    except StrictJsonError:
        return {}


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _caches(shelf: Shelf, environ: Mapping[str, str]) -> Iterator[Path]:
    home = shelf.home
    cache_home = _folder(environ, "XDG_CACHE_HOME", home / ".cache")
    data_home = _folder(environ, "XDG_DATA_HOME", home / ".local" / "share")
    # Not `.npm` itself: it holds logs, which may tell of tokens.
    yield _folder(environ, "npm_config_cache", home / ".npm") / "_cacache"
    yield data_home / "pnpm" / "store"
    yield home / ".pnpm-store"
    yield _folder(environ, "YARN_CACHE_FOLDER", cache_home / "yarn")
    yield home / ".yarn" / "berry" / "cache"
    yield cache_home / "node" / "corepack"
