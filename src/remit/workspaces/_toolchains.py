"""Finds what a workspace's commands need to see beside the system and the checkout's tree."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from remit.workspaces._python_toolchains import find_python, show_path_folder
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
    """
    real_home = Path(os.path.realpath(home or os.path.expanduser("~")))
    shelf = Shelf(root=root, home=real_home, data=data and data.resolve())
    for mount in mounts:
        shelf.show(mount.source, kind="mount", why="mounts", writable=mount.writable)
    for folder in path:
        if shelf.show(folder, kind="path", why="path"):
            shelf.add_to_path(folder)
    if wanted == "auto":
        find_python(shelf, environ=environ, executables=executables)
    elif wanted != "none":
        for folder in wanted:
            show_path_folder(shelf, folder / "bin" if (folder / "bin").is_dir() else folder, why="toolchains")
    return shelf.result()
