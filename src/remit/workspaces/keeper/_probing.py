"""Finds out once, by doing it, what this machine allows: namespaces, overlays, bubblewrap."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from remit.workspaces.keeper import _cgroups, _mounts
from remit.workspaces.keeper._channel import Channel
from remit.workspaces.keeper._landlock import landlock_version, try_landlock
from remit.workspaces.keeper._loop import Loop

_TIMEOUT_S: Final = 20


def probe(link: socket.socket, order: dict[str, Any]) -> None:
    """The whole life of a process that is forked to look: tries everything and answers."""
    answer: dict[str, Any] = {"namespace": None, "overlay": None, "bubblewrap": None, "program": None}
    answer["cgroup"], answer["cgroup_reason"] = _cgroups.find_pids_folder()
    answer["landlock"], answer["landlock_version"] = try_landlock(), landlock_version()
    data = Path(order["data"])
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        privileged = _mounts.enter_mount_namespace()
    except OSError as error:
        reason = f"a mount namespace is refused ({error.strerror or error})"
        answer.update(namespace=reason, overlay=reason, bubblewrap=reason)
        answer["program"] = next(iter(order["bubblewraps"]), None)
    else:
        answer["overlay"] = _try_overlay(data, privileged=privileged)
        answer["program"], answer["bubblewrap"] = _try_all(order["bubblewraps"], order["options"])
    loop = Loop()
    channel = Channel(loop, link, on_frame=lambda frame: None, on_closed=loop.stop)
    channel.send(0, {"result": answer})
    channel.close_when_sent()


def _try_overlay(data: Path, *, privileged: bool) -> str | None:
    """None: it works, with everything that reading the upper folder relies on; else why not, in words."""
    folder = Path(tempfile.mkdtemp(prefix="probe-", dir=data))
    parts = {name: folder / name for name in ("lower", "upper", "work", "target")}
    try:
        for part in parts.values():
            part.mkdir()
        (parts["lower"] / "gone").write_text("x")
        (parts["lower"] / "kept").write_text("x")
        (parts["lower"] / "folder").mkdir()
        (parts["lower"] / "folder" / "file").write_text("x")
        _mounts.mount_overlay(_mounts.Overlay(**parts), privileged=privileged)
        return _use_overlay(parts["target"], parts["upper"], lower=parts["lower"])
    except OSError as error:
        return f"an overlay in {data} is refused ({error.strerror or error})"
    finally:
        with suppress(OSError):
            _mounts.unmount(parts["target"])
        with suppress(OSError):
            (parts["work"] / "work").chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _use_overlay(target: Path, upper: Path, *, lower: Path) -> str | None:
    (target / "gone").unlink()
    (target / "kept").write_text("changed")
    shutil.rmtree(target / "folder")
    (target / "folder").mkdir()
    whiteout = (upper / "gone").lstat()
    if not stat.S_ISCHR(whiteout.st_mode) or whiteout.st_rdev != 0:
        return "an overlay here doesn't mark what was deleted"
    if os.listdir(target / "folder") or (lower / "kept").read_text() != "x":
        return "an overlay here shows or changes what lies below it"
    return None


def _try_all(programs: list[str], options: list[str]) -> tuple[str | None, str | None]:
    """The first program that works; else the first one there is, and why it doesn't work."""
    problems = [(program, _try_bubblewrap(program, options)) for program in programs[:1]]
    for program in programs[1:]:
        if problems[-1][1] is None:
            break
        problems.append((program, _try_bubblewrap(program, options)))
    if not problems:
        return None, "bubblewrap isn't installed"
    return problems[-1] if problems[-1][1] is None else problems[0]


def _try_bubblewrap(program: str, options: list[str]) -> str | None:
    try:
        done = subprocess.run(
            [program, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} can't be run ({error})"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{program} fails here: {said[-1] if said else f'exit code {done.returncode}'}"
