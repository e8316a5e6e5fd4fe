"""Finds what a workspace's commands need to see beside the system and the checkout's tree."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Literal

from remit.workspaces._bubblewrap import SYSTEM_FOLDERS, SYSTEM_PATH
from remit.workspaces._compiled_toolchains import find_go, find_java, find_rust
from remit.workspaces._node_toolchains import find_node, show_node_folder
from remit.workspaces._path_folders import show_path_folder
from remit.workspaces._python_toolchains import find_python, finish_python, show_pyenv_folder
from remit.workspaces._settings import Mount
from remit.workspaces._shelf import Refused, Shelf, Toolchain, Toolchains

__all__ = ["Refused", "Toolchain", "Toolchains", "find_toolchains"]


def find_toolchains(
    root: Path,
    *,
    environ: Mapping[str, str],
    home: Path | None = None,
    data: Path | None = None,
    wanted: Literal["auto", "none"] | Sequence[Path] = "auto",
    path: Sequence[Path] = (),
    mounts: Sequence[Mount] = (),
    executables: Sequence[str] = (),
    of_base: Container[str] = frozenset(),
) -> Toolchains:
    """Finds what a workspace's commands need to see.

    Args:
        root: the workspace root, without links.
        environ: the environment of whoever works in the workspace: PATH, VIRTUAL_ENV and the like.
        home: their home folder; None: the own user's.
        data: the node's data folder.
        wanted: `auto`, `none`, or exactly these folders.
        path: folders that the settings put in front of PATH.
        mounts: folders that the settings show.
        executables: programs that the settings name; what an absolute one needs is shown.
        of_base: files of the repository, from its root: none of them decides what of the machine is shown.
    """
    real_home = Path(os.path.realpath(home or os.path.expanduser("~")))
    shelf = Shelf(root=root, home=real_home, data=data and data.resolve(), of_base=of_base)
    for mount in mounts:
        shelf.show(mount.source, kind="mount", why="mounts", writable=mount.writable)
    for folder in path:
        if shelf.show(folder, kind="path", why="path"):
            shelf.add_to_path(folder)
    if wanted == "auto":
        _find_all(shelf, environ=environ, executables=executables)
    elif wanted != "none":
        for folder in wanted:
            show_path_folder(
                shelf, folder / "bin" if os.path.isdir(folder / "bin") else folder, why="toolchains"
            )
    return shelf.result()


def _find_all(shelf: Shelf, *, environ: Mapping[str, str], executables: Sequence[str]) -> None:
    folders = [Path(name) for name in environ.get("PATH", "").split(":") if name.startswith("/")]
    find_python(shelf, environ=environ, folders=folders, executables=executables)
    find_rust(shelf, environ=environ, folders=folders)
    find_go(shelf, environ=environ, folders=folders)
    find_java(shelf, environ=environ, folders=folders)
    find_node(shelf, environ=environ, folders=folders)
    _show_tool_cache(shelf, environ)
    for folder in folders:
        if show_pyenv_folder(shelf, folder, environ=environ):
            continue
        if show_node_folder(shelf, folder, environ=environ):
            continue
        if not any(folder.is_relative_to(part) for part in SYSTEM_FOLDERS):
            show_path_folder(shelf, folder, why="on PATH")
        elif str(folder) not in SYSTEM_PATH and os.path.isdir(
            folder
        ):  # such as /usr/local/go/bin, which no sandbox has in PATH by itself
            shelf.add_to_path(folder)
    finish_python(shelf)


def _show_tool_cache(shelf: Shelf, environ: Mapping[str, str]) -> None:
    """Where hosted CI machines keep every version of every language: tools only, so all of it."""
    said = environ.get("RUNNER_TOOL_CACHE") or environ.get("AGENT_TOOLSDIRECTORY") or ""
    for folder in dict.fromkeys((Path(said or "/opt/hostedtoolcache"), Path("/opt/hostedtoolcache"))):
        if folder.is_absolute():
            shelf.show(folder, kind="tool-cache", why="the machine's tool cache")
