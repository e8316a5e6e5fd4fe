"""A sandboxed command's leftovers are killed after its exit code was passed on, however the two race."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, cast

import pytest

from remit.workspaces.keeper import _jail, _processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remit.workspaces.keeper._loop import Loop

INIT, COMMAND, LEFT = 100, 101, 102
# How init ends a command: the kernel wakes it, it reaps, it writes the code, it sleeps again. While it reaps
# it may be shown as asleep; no look is so quick that it sees that twice.
STEPS = (("S", True), ("R", True), ("S", False), ("R", False), ("S", False))
SEEN_ONCE = 2


class Race:
    """Init goes on by so many steps before each look at it."""

    def __init__(self, hurry: Sequence[int]) -> None:
        self._hurry = iter(hurry)
        self.step = 0

    def _look(self) -> tuple[str, bool]:
        forward = next(self._hurry, len(STEPS))
        if self.step == SEEN_ONCE:
            forward = max(1, forward)
        self.step = min(self.step + forward, len(STEPS) - 1)
        return STEPS[self.step]

    def read_process(self, pid: int) -> _processes.Process:
        """Init, as it is now."""
        return _processes.Process(pid, 1, pid, self._look()[0], 1)

    def is_reaped(self, handle: int) -> bool:
        """Whether init has taken note of the command's end."""
        return not self._look()[1]

    def children_of(self, pid: int) -> tuple[int, ...]:
        """What was left behind; the kernel may leave the command out, whatever became of it."""
        return (LEFT,)


class Turns:
    """A loop that only remembers what is to come."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def after(self, _delay_s: float, callback: Callable[[], None]) -> None:
        """Later."""
        self.callbacks.append(callback)


@pytest.mark.parametrize("hurry", list(product(range(len(STEPS)), repeat=4)), ids=str)
def test_nothing_is_killed_before_the_exit_code_is_told(
    hurry: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that left processes behind keeps its own exit code, whichever moment we look at."""
    race, turns = Race(hurry), Turns()
    monkeypatch.setattr(_processes, "read_process", race.read_process)
    monkeypatch.setattr(_processes, "children_of", race.children_of)
    monkeypatch.setattr(_processes, "is_reaped", race.is_reaped)
    jail = _jail.Jail(cast("Loop", turns), cast("_jail.JailOrder", None), when_ended=lambda _: None)
    ended_at: list[int] = []
    monkeypatch.setattr(jail, "end", lambda: ended_at.append(race.step))
    vars(jail).update(_init_pid=INIT, _command_handle=COMMAND)
    turns.callbacks.append(lambda: jail._end_when_told(0.001))
    while turns.callbacks and not ended_at:
        turns.callbacks.pop()()
    assert ended_at == [len(STEPS) - 1]
