"""What runs below a process: read from /proc, signalled without hitting a stranger."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it was seen."""

    pid: int
    """In this process's own pid namespace."""
    parent: int
    group: int
    state: str
    """The kernel's letter; `Z` has ended and waits to be reaped."""
    started: int
    """Clock ticks since boot; with the pid, what tells it from a later process of the same number."""

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.state in "ZX"


def read_process(pid: int) -> Process | None:
    """The process of this number; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, so the fields are counted from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[2]), fields[0].decode(), int(fields[19]))


def is_reaped(handle: int) -> bool:
    """Whether the process of a pidfd has ended and its parent has taken note."""
    try:
        signal.pidfd_send_signal(handle, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it has another user by now
        return False
    return False


def children_of(pid: int) -> tuple[int, ...]:
    """Direct children of a process, all its threads' together.

    The kernel may leave one out while the list changes, as when another child ends or an orphan comes.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return ()
    found: list[int] = []
    for thread in threads:
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # kernel built without it
                return scan_for_children(pid)
        except OSError:
            continue
    return tuple(found)


def scan_for_children(pid: int) -> tuple[int, ...]:
    """Direct children of a process, by a look at every process there is: dear, but none is left out."""
    numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())
    seen = (read_process(number) for number in numbers)
    return tuple(process.pid for process in seen if process and process.parent == pid)


def descendants_of(pid: int) -> tuple[Process, ...]:
    """Everything below a process that still runs, parents before children."""
    found: list[Process] = []
    waiting = list(children_of(pid))
    while waiting:
        process = read_process(waiting.pop(0))
        if process is None:
            continue
        if not process.ended:
            found.append(process)
        waiting += children_of(process.pid)
    return tuple(found)


def inner_pid(pid: int) -> int | None:
    """The number that a process has in its own, innermost pid namespace."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


def describe(process: Process) -> str:
    """A process in words: `sleep 600 (pid 12)`, the number as the command itself saw it."""
    try:
        raw = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        raw = raw or Path(f"/proc/{process.pid}/comm").read_bytes()
    except OSError:
        raw = b"?"
    words = raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    shown = "".join(character if character.isprintable() else " " for character in words)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[: _SHOWN_CHARACTERS - 1] + "…"
    return f"{shown} (pid {inner_pid(process.pid) or process.pid})"


def send_signal(process: Process, number: int) -> bool:
    """Signals exactly this process; False when it's gone, also when its number has a new owner."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)
        if now is None or now.started != process.started:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
            return True
        return False
    finally:
        os.close(handle)
