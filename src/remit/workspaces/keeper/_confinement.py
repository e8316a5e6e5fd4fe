"""How a command's processes are started and ended: what `_commands` needs of a sandbox level."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the foreground process ended, once everything that the command started is gone."""

    exit_code: int | None = None
    """None: it never ran, or was killed before it said."""
    signal: int | None = None
    """The signal that ended it, where the kernel tells it apart from an exit code above 128."""
    leftovers: tuple[str, ...] = ()
    """What still ran when the foreground process had ended, in words."""
    denied: tuple[str, ...] = ()
    """What it wanted to reach on the network and mustn't, in words."""
    problem: str | None = None
    """Why the command couldn't be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Descriptors that become the command's standard streams; the starter closes none of them."""

    stdin: int
    stdout: int
    stderr: int


class Confined(Protocol):
    """A command's processes."""

    def start(self, streams: Streams) -> None:
        """Starts the command.

        Raises:
            OSError: nothing was started.
        """
        ...

    def pids(self) -> tuple[int, ...]:
        """Every process of the command that runs now."""
        ...

    def own_children(self) -> tuple[int, ...]:
        """The children of this process that hold the command, such as a supervisor."""
        ...

    def ask_to_end(self) -> None:
        """Sends TERM where a shell's trap sees it."""
        ...

    def end(self) -> None:
        """Kills everything, at once."""
        ...


WhenEnded = Callable[[Ending], None]


class PidsGroup:
    """A cgroup that bounds the number of processes: the only bound on forks that holds for root."""

    def __init__(self, parent: str, name: str, *, max_processes: int) -> None:
        self._folder = Path(parent) / name
        self._folder.mkdir()
        (self._folder / "pids.max").write_text(str(max_processes))

    def add(self, pid: int) -> None:
        """Puts a process into the group, and with it all that it will start."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> bool:
        """Removes the group; False while the kernel still counts an ended process in it."""
        try:
            os.rmdir(self._folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True
