"""Finds what the programs of a folder on PATH need, beside the folder itself.

Where it is plainly one tool's own, as the `bin` of an unpacked Node, that is the installation around it. A
folder such as `~/.local/bin` holds many tools: of each program it is the environment or installation that its
link leads to, or that the first line of the script names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remit.workspaces._python_toolchains import is_python_prefix, show_environment, show_interpreter
from remit.workspaces._shelf import Shelf

__all__ = ["show_path_folder"]

_MAX_FILES: Final = 2_000
_MAX_LINKS: Final = 16
_FIRST_LINE_BYTES: Final = 512
_PROGRAM_FOLDERS: Final = ("bin", "sbin", "Scripts")
_INSTALLATION_MARKS: Final = (
    *("lib/node_modules", "lib/rustlib", "pkg/tool", "lib/jvm.cfg", "jre/lib", "conda-meta", "share/julia"),
    *("boot/plexus-classworlds-*.jar", "lib/gradle-*.jar", "lib/kotlin-*.jar", "lib/ruby", "lib/perl5"),
)
"""What plainly is one tool's own installation, also in a home folder."""


def show_path_folder(shelf: Shelf, folder: Path, *, why: str) -> None:
    """Shows a folder of programs, with the installation around it where that is plainly one of its own."""
    if not os.path.isdir(folder):
        return
    if shelf.show(_what_is_one(shelf, folder), kind="path", why=why):
        shelf.add_to_path(folder)
    if folder.name in _PROGRAM_FOLDERS and os.path.isfile(folder.parent / "pyvenv.cfg"):
        show_environment(shelf, folder.parent, why=why)
    for program, leads_to in _leads(folder):
        if not shelf.is_visible(leads_to):
            _show_around(shelf, leads_to, why=f"{program} leads there")


def _what_is_one(shelf: Shelf, folder: Path) -> Path:
    """The folder itself, or the installation that it is a part of."""
    prefix = folder.parent
    if folder.name not in _PROGRAM_FOLDERS or _is_shared(shelf, prefix):
        return folder
    whole = is_python_prefix(prefix) or _is_managed(prefix) or _is_installation(shelf, prefix)
    return prefix if whole else folder


def _is_shared(shelf: Shelf, prefix: Path) -> bool:
    """Whether a folder around `bin` holds more than one tool: a home folder, or `.local` in it."""
    return prefix in (shelf.home, shelf.home / ".local") or shelf.home.is_relative_to(prefix)


def _is_managed(prefix: Path) -> bool:
    """Whether mise or asdf have installed it: `…/installs/TOOL/VERSION`."""
    return prefix.parent.parent.name == "installs"


def _is_installation(shelf: Shelf, prefix: Path) -> bool:
    # In a home folder only what is known to be an installation; elsewhere what looks like one.
    if any(any(prefix.glob(mark)) for mark in _INSTALLATION_MARKS):
        return True
    if prefix.is_relative_to(shelf.home):
        return False
    return any(os.path.isdir(prefix / name) for name in ("lib", "lib64", "libexec", "share", "include"))


def _leads(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Programs of a folder that are links or scripts, and where the file or its interpreter lies."""
    for number, entry in enumerate(_entries(folder)):
        if number >= _MAX_FILES:
            return
        if os.path.islink(entry):
            yield from ((entry, hop) for hop in _hops(entry))
        elif (interpreter := _interpreter_of(entry)) is not None:
            yield entry, interpreter


def _hops(link: Path) -> Iterator[Path]:
    """Every place on the way of a link: each must be there for the next to be found."""
    for _ in range(_MAX_LINKS):
        try:
            leads_to = os.readlink(link)
        except OSError:  # no link, or in a folder that is closed to us
            return
        link = Path(os.path.normpath(link.parent / leads_to))
        yield link


def _interpreter_of(script: Path) -> Path | None:
    """What the first line of a script names; None: it is no script, or names what is looked for on PATH."""
    try:
        handle = os.open(script, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        start = os.read(handle, _FIRST_LINE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    if not start.startswith(b"#!"):
        return None
    named = start[2:].split(b"\n", 1)[0].split()
    return Path(os.fsdecode(named[0])) if named and named[0].startswith(b"/") else None


def _show_around(shelf: Shelf, program: Path, *, why: str) -> None:
    """Shows what a program that lies elsewhere needs; nothing where it isn't plainly a tool's."""
    folder, prefix = program.parent, program.parent.parent
    packages = next((parent for parent in program.parents if parent.name == "node_modules"), None)
    if os.path.isfile(prefix / "pyvenv.cfg"):
        if prefix != Path(sys.prefix):  # such as `remit` itself: no command of a run needs it
            show_environment(shelf, prefix, why=why)
    elif packages is not None:
        shelf.show(packages, kind="path", why=why)
    elif folder.name in _PROGRAM_FOLDERS:
        if is_python_prefix(prefix) and not _is_shared(shelf, prefix):
            show_interpreter(shelf, folder, why=why)
        else:
            shelf.show(_what_is_one(shelf, folder), kind="path", why=why)


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where it can't be read: PATH may name another user's."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
