"""What a dead zygote's keepers were just starting, found and ended.

Bubblewrap's init asks to die with its parent late, only once its command has been forked. Until then nothing
ends it where zygote and keeper are killed together: no parent is left that would. So every bubblewrap carries
the mark of its zygote in its own environment (its command's is another), and two look for it: a guard, a
process beside the zygote that outlives it by a moment; and the next zygote, where the guard was killed too.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from remit.workspaces.keeper import _processes
from remit.workspaces.keeper._workers import close_all_but

MARK: Final = "REMIT_ZYGOTE"
"""The variable's name."""
_AGAIN_S: Final = 0.01
_EMPTY_LOOKS: Final = 10
"""A process that was being forked shows a moment later."""


def mark_of(zygote: int) -> str:
    """What the processes below a zygote carry: its pid, and when it was started."""
    process = _processes.read_process(zygote)
    return f"{zygote}:{process.started if process else 0}"


def start_guard() -> int:
    """Forks the guard of the calling zygote; its pid.

    Raises:
        OSError: there is no room for a process.
    """
    zygote = os.getpid()
    mark = mark_of(zygote)
    handle = os.pidfd_open(zygote)
    try:
        pid = os.fork()
        if pid == 0:
            _guard(handle, mark)
        return pid
    finally:
        os.close(handle)


def _guard(zygote: int, mark: str) -> NoReturn:
    try:
        os.setsid()
        close_all_but({0, 1, 2, zygote})
        _wait_for_end(zygote)
        end_marked(lambda found: found == mark)
    finally:
        os._exit(0)


def _wait_for_end(handle: int) -> None:
    # waitid takes children alone, and a zygote isn't its guard's; poll takes any process.
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll()


def end_marked(wanted: Callable[[str], bool]) -> None:
    """Kills every process below this pid namespace whose mark is wanted, until none is seen for a while."""
    empty = 0
    while empty < _EMPTY_LOOKS:
        empty = 0 if _kill_marked(wanted) else empty + 1
        time.sleep(_AGAIN_S)


def end_forsaken() -> None:
    """Kills what zygotes left that are dead; one look, since nobody starts anything for them any more."""
    _kill_marked(lambda mark: not _alive(mark))


def _alive(mark: str) -> bool:
    number, _, started = mark.partition(":")
    if not (number.isdecimal() and started.isdecimal()):
        return True  # it isn't ours
    process = _processes.read_process(int(number))
    return process is not None and not process.ended and str(process.started) == started


def _kill_marked(wanted: Callable[[str], bool]) -> int:
    killed = 0
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        mark = _read_mark(int(name))
        if mark is None or not wanted(mark):
            continue
        process = _processes.read_process(int(name))
        if process is not None and not process.ended and _is_own_init(process.pid):
            with suppress(PermissionError):
                killed += _processes.send_signal(process, signal.SIGKILL)
    return killed


def _read_mark(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return None
    start = f"{MARK}=".encode()
    # Bubblewrap is started with this variable alone; whoever has others merely speaks of it.
    if len([each for each in variables if each]) != 1 or not variables[0].startswith(start):
        return None
    return variables[0].removeprefix(start).decode("utf-8", "replace")


def _is_own_init(pid: int) -> bool:
    """Whether it is the first of a namespace right below ours; a container's marks tell other pids."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        if line.startswith("NSpid:"):
            return line.split()[2:] == ["1"]  # after its number here
    return False
