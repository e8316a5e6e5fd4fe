"""Who waits for a run through a compatible door, and what becomes of it when they hang up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remit.admission import Caller
from remit.api.dialects._calls import DoorCall
from remit.api.dialects._foreground import Foreground
from remit.contract import Limits, RunStatus, RunView

BEGUN = datetime(2026, 11, 30, tzinfo=UTC)
CALLER = Caller(tenant="local")


class HeldHost:
    """A host with one run, whose cancels take as long as the test wants."""

    def __init__(self, *, on_disconnect: str = "cancel") -> None:
        self.view = RunView(
            id="run_1",
            session_id="run_1",
            root_run_id="run_1",
            binding="b",
            profile="direct",
            status=RunStatus.WORKING,
            created_at=BEGUN,
            limits=Limits(),
        )
        self.bindings = {"b": SimpleNamespace(on_disconnect=on_disconnect)}
        self.clock, self.store = self, self
        self.now_at = BEGUN
        self.cancels: list[str] = []
        self.let_go = asyncio.Event()

    def now(self) -> datetime:
        return self.now_at

    async def find_run(self, run_id: str, **_: Any) -> Any:
        return SimpleNamespace(view=self.view)

    async def find_asked(self, ask: str, **_: Any) -> None:
        """Nothing was asked of an earlier host."""

    async def cancel(self, run_id: str, **how: Any) -> None:
        self.cancels.append(how["by"])
        await self.let_go.wait()


def entered(host: Any, *, times: int = 1) -> Foreground:
    """Connections that wait for the run, which a call has led to."""
    foreground = Foreground(host)
    foreground.remember("ask", "run_1")
    for _ in range(times):
        foreground.enter(host.view, tenant="local")
    return foreground


async def leave(foreground: Foreground, host: HeldHost, *, answered: bool = False) -> None:
    await foreground.leave(host.view, caller=CALLER, ask="ask", answered=answered)


async def test_a_repetition_never_joins_what_its_own_hang_up_is_stopping() -> None:
    """R80: from the moment of the hang-up on, also while the cancel isn't on record yet."""
    host = HeldHost()
    foreground = entered(host)
    assert await foreground.find_joinable("ask", tenant="local") is not None
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(foreground, host))
        while not host.cancels:
            await asyncio.sleep(0)
        assert not host.view.cancel_requested
        assert await foreground.find_joinable("ask", tenant="local") is None
        host.let_go.set()
    assert host.cancels == ["client_disconnected"]


async def test_only_the_last_one_to_leave_stops_it() -> None:
    """R4: another connection still waits for the answer."""
    host = HeldHost()
    host.let_go.set()
    foreground = entered(host, times=2)
    await leave(foreground, host)
    assert host.cancels == []
    assert await foreground.find_joinable("ask", tenant="local") is not None
    await leave(foreground, host)
    assert host.cancels == ["client_disconnected"]


@pytest.mark.parametrize(("answered", "on_disconnect"), [(True, "cancel"), (False, "continue")])
async def test_who_has_the_answer_or_needs_none_stops_nothing(*, answered: bool, on_disconnect: str) -> None:
    """R4: an answered connection closes as a matter of course, and a binding may let its runs go on."""
    host = HeldHost(on_disconnect=on_disconnect)
    host.let_go.set()
    foreground = entered(host)
    await leave(foreground, host, answered=answered)
    assert host.cancels == []
    assert await foreground.find_joinable("ask", tenant="local") is not None


@pytest.mark.parametrize(
    ("status", "minutes", "joins"),
    [
        (RunStatus.COMPLETED, 9, True),
        (RunStatus.COMPLETED, 11, False),
        (RunStatus.FAILED, 0, False),
        (RunStatus.CANCELLED, 0, False),
    ],
)
async def test_what_ended_is_joined_if_it_completed_just_now(
    status: RunStatus, minutes: int, *, joins: bool
) -> None:
    """R80: ten minutes of a completed run; a failed one is asked anew."""
    host = HeldHost()
    foreground = entered(host)
    host.view = host.view.model_copy(update={"status": status, "ended_at": BEGUN})
    host.now_at = BEGUN + timedelta(minutes=minutes)
    found = await foreground.find_joinable("ask", tenant="local")
    assert (found is not None) == joins
    assert await foreground.find_joinable("another", tenant="local") is None


def ask_of(
    *, tenant: str = "t", key: str = "k", path: str = "/v1/x", content: bytes = b"{}", **headers: str
) -> str:
    """What makes this call the same as another."""
    identity = SimpleNamespace(key=SimpleNamespace(id=key, tenant=tenant))
    request = SimpleNamespace(url=SimpleNamespace(path=path))
    call = DoorCall(
        doors=cast("Any", None),
        foreground=cast("Any", None),
        dialect=cast("Any", None),
        request=cast("Any", request),
        request_id="req_1",
        headers={name.replace("_", "-").encode(): value.encode() for name, value in headers.items()},
        path={},
        query={},
        content=content,
        body=None,
        identity=cast("Any", identity),
    )
    return call.ask


def test_only_the_same_call_of_the_same_caller_is_a_repetition() -> None:
    """R80: tenant, key, door, chat and every byte of the body; a count of tries changes nothing."""
    others = [
        ask_of(tenant="u"),
        ask_of(key="l"),
        ask_of(path="/v1/y"),
        ask_of(content=b"{ }"),
        ask_of(x_openwebui_chat_id="chat-1"),
        ask_of(x_openwebui_chat_id="chat-2"),
    ]
    assert len({ask_of(), *others}) == 1 + len(others)
    assert ask_of(x_stainless_retry_count="1") == ask_of()
