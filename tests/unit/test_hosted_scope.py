"""A caller's scope: aborted by hand or by its deadline, once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remit.errors import MisuseError
from remit.runs import Scope, ScopeEnd


class SetClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def test_an_abort_is_told_once() -> None:
    """The first abort counts; whoever listens is told, once; whoever comes later is told at once."""
    scope, told = Scope(), list[ScopeEnd]()
    scope.on_abort(told.append)
    assert not scope.aborted
    assert scope.abort("first")
    assert not scope.abort("second")
    assert told == [ScopeEnd(code="caller", reason="first")]
    scope.on_abort(told.append)
    assert told == [ScopeEnd(code="caller", reason="first")] * 2
    assert scope.aborted


def test_whoever_has_left_isnt_told() -> None:
    """The end of the listening is the end; twice changes nothing."""
    scope, told = Scope(), list[ScopeEnd]()
    leave = scope.on_abort(told.append)
    scope.on_abort(lambda end: told.append(ScopeEnd(code="caller", reason="other")))
    leave()
    leave()
    scope.abort()
    assert told == [ScopeEnd(code="caller", reason="other")]


async def test_a_deadline_aborts() -> None:
    """While somebody listens a timer runs, and no longer."""
    scope, told = Scope(deadline=timedelta(milliseconds=20)), list[ScopeEnd]()
    leave = scope.on_abort(told.append)
    assert scope._timer is not None
    leave()
    assert scope._timer is None
    await asyncio.sleep(0.04)
    assert told == []
    assert scope.aborted
    assert scope.ended is None
    scope.on_abort(told.append)
    assert told == [ScopeEnd(code="deadline")]
    again = Scope(deadline=timedelta(milliseconds=20))
    again.on_abort(told.append)
    await asyncio.sleep(0.1)
    assert told == [ScopeEnd(code="deadline")] * 2
    assert not again.abort()


async def test_an_abort_before_the_deadline() -> None:
    """The first of the two counts, and its timer is gone."""
    scope, told = Scope(deadline=timedelta(milliseconds=20)), list[ScopeEnd]()
    scope.on_abort(told.append)
    scope.abort("by hand")
    await asyncio.sleep(0.05)
    assert told == [ScopeEnd(code="caller", reason="by hand")]


async def test_a_loop_that_is_ahead_of_the_clock() -> None:
    """The scope's own clock decides: a timer that fires too early is set anew."""
    clock = SetClock()
    scope, told = Scope(deadline=timedelta(seconds=0.01), clock=clock), list[ScopeEnd]()
    scope.on_abort(told.append)
    await asyncio.sleep(0.05)
    assert told == []
    clock.seconds = 0.02
    await asyncio.sleep(0.05)
    assert told == [ScopeEnd(code="deadline")]


@pytest.mark.parametrize("past", [timedelta(0), timedelta(days=-1), datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_deadline_that_has_passed(past: Any) -> None:
    """It has expired from the outset."""
    assert Scope(deadline=past).expired
    assert Scope(deadline=past).aborted


@pytest.mark.parametrize("wrong", [5, "soon", datetime(2030, 1, 1)])
def test_what_isnt_a_deadline(wrong: Any) -> None:
    """A moment must name its zone; a number says neither from when nor in what."""
    with pytest.raises(MisuseError):
        Scope(deadline=wrong)
