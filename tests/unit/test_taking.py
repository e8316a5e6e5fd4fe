"""What is taken in a thread, and a cancel meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from remit.workspaces._taking import take_in_thread


async def test_what_is_taken_is_had() -> None:
    """The thing, or its error; nothing is given back."""
    given: list[str] = []
    assert await take_in_thread(lambda: "lock", given.append) == "lock"
    with pytest.raises(BlockingIOError):
        await take_in_thread(_refuse, given.append)
    assert given == []


def _refuse() -> str:
    raise BlockingIOError


@pytest.mark.parametrize("refused", [False, True])
async def test_a_cancel_leaves_nothing_taken(refused: bool) -> None:
    """R57: what the thread takes after the cancel is given back before the cancel goes on."""
    go, given = threading.Event(), list[str]()

    def take() -> str:
        go.wait(30)
        return _refuse() if refused else "lock"

    taking = asyncio.get_running_loop().create_task(take_in_thread(take, given.append))
    await asyncio.sleep(0.01)
    for _ in range(2):
        taking.cancel()
        await asyncio.sleep(0.01)
    assert not taking.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert given == ([] if refused else ["lock"])
