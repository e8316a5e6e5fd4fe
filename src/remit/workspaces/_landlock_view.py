"""What commands may touch at the level `landlock`: the same view as bubblewrap's, as grants on real paths."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from remit.workspaces._bubblewrap import SYSTEM_FOLDERS
from remit.workspaces._checkout_request import CheckoutRequest
from remit.workspaces._etc import NETWORK_FILES, system_files
from remit.workspaces._seccomp import seccomp_program

__all__ = ["landlock_plan"]

_IDENTITY: Final = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname")
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_MAX_ENTRIES: Final = 20_000


def landlock_plan(request: CheckoutRequest) -> dict[str, Any]:
    """The grants beside the checkout's own folders, and the call filters; as plain values."""
    tools = request.toolchains
    folders = [*tools.read_only, *tools.caches, *request.object_stores]
    read = [*SYSTEM_FOLDERS, *system_files(), *NETWORK_FILES, *_IDENTITY, "/proc"]
    listed: list[str] = []
    for folder in folders:
        for path, whole in _parts_of(folder, frozenset(tools.masked)):
            (read if whole else listed).append(path)
    return {
        "read": tuple(dict.fromkeys(read)),
        "listed": tuple(listed),
        "write": (*map(str, tools.writable), *_DEVICES),
        "offline": _encoded(seccomp_program(sockets=False)),
        "online": _encoded(seccomp_program()),
    }


def _parts_of(folder: Path, masked: Iterable[Path]) -> Iterator[tuple[str, bool]]:
    """The folder if nothing in it is covered, else each of its parts: no grant is taken back below."""
    inside = frozenset(path for path in masked if path.is_relative_to(folder))
    if folder in inside:
        return
    if not inside:
        yield str(folder), True
        return
    yield str(folder), False
    for number, name in enumerate(sorted(os.listdir(folder))):
        if number >= _MAX_ENTRIES:
            return
        yield from _parts_of(folder / name, inside)


def _encoded(program: bytes) -> str:
    return base64.b64encode(program).decode("ascii")
