"""The embedding API: wrong calls are refused where they are made; callbacks; a host's states and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from host_kit import THINKS, WAITS, make_config, open_host, request
from remit import Host, HostedInput, HostStatus, ModelTarget, Run, RunCancelled, Scope, SessionSpec
from remit.engine import EmbeddedEngine
from remit.errors import (
    ConfigError,
    Draining,
    InvalidRequest,
    MisuseError,
    NotFound,
    PreconditionFailed,
    RemitError,
    RequestError,
)
from remit.events import Event
from remit.node_agent import EmbeddedNode
from remit.nodes import InProcessLink
from remit.storage import SqliteStore
from remit.work import CleanupScope


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[Host]:
    async with open_host(tmp_path) as made:
        yield made


# ---- wrong calls


@pytest.mark.parametrize(
    ("arguments", "error", "param"),
    [
        ({"request": "do it"}, MisuseError, "request"),
        ({"request": None}, MisuseError, "request"),
        ({"request": [("prompt", "a")]}, MisuseError, "request"),
        ({"request": {}}, InvalidRequest, "prompt"),
        ({"request": {"prompt": "  "}}, InvalidRequest, "prompt"),
        ({"request": {"prompt": 7}}, InvalidRequest, "prompt"),
        ({"request": {"prompt": "a", "colour": "blue"}}, InvalidRequest, "colour"),
        ({"request": {"prompt": "a", "id": "no spaces"}}, InvalidRequest, "id"),
        ({"request": {"prompt": "a", "binding": "no"}}, NotFound, "binding"),
        (
            {"request": {"prompt": "a", "limits": {"wall_clock_ms": 0}}},
            InvalidRequest,
            "limits.wall_clock_ms",
        ),
        ({"request": {"prompt": "a", "metadata": {"x": object()}}}, InvalidRequest, "metadata.x"),
        ({"request": {"prompt": "a", "model": "nobody:m"}}, InvalidRequest, "model"),
        ({"request": {"prompt": "a", "model": "openai:gpt-5.2"}}, ConfigError, None),
        ({"idempotency_key": ""}, MisuseError, "idempotency_key"),
        ({"idempotency_key": 7}, MisuseError, "idempotency_key"),
        ({"idempotency_key": "k" * 256}, MisuseError, "idempotency_key"),
        ({"idempotency_key": "a\x00"}, InvalidRequest, "Idempotency-Key"),
        ({"on_event": "print"}, MisuseError, "on_event"),
        ({"scope": "mine"}, MisuseError, "scope"),
        ({"scope": Scope(), "deadline": timedelta(1)}, MisuseError, "deadline"),
        ({"deadline": 5}, MisuseError, "deadline"),
        ({"deadline": datetime(2030, 1, 1)}, MisuseError, "deadline"),
    ],
)
@pytest.mark.parametrize("call", ["start", "run"])
async def test_a_wrong_start(
    host: Host, call: str, arguments: dict[str, Any], error: type[RemitError], param: str | None
) -> None:
    """R55: the documented error at the call, the argument named; nothing is stored, nothing runs."""
    arguments = {"request": request(), **arguments}
    with pytest.raises(error) as raised:
        await getattr(host, call)(arguments.pop("request"), **arguments)
    if param is not None:
        assert raised.value.fields["param"] == param
    runs, _ = await host.store.list_runs()
    assert runs == ()
    assert host.residencies == {}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda run: run.events(after=-1),
        lambda run: run.events(after="1"),
        lambda run: run.events(after=True),
        lambda run: run.acknowledge("yes"),
        lambda run: run.acknowledge(None),
        lambda run: run.cancel_nowait(by="nobody"),
        lambda run: run.cancel_nowait(reason=7),
        lambda run: run.cancel_nowait(reason="x" * 1001),
    ],
)
async def test_a_wrong_call_of_a_handle(host: Host, wrong: Callable[[Run], Any]) -> None:
    """The error comes from the call itself, before anything is awaited or looped over."""
    run = await host.start(request(THINKS))
    with pytest.raises(MisuseError):
        wrong(run)
    assert not (await run.view()).status.ended


@pytest.mark.parametrize("arguments", [{"by": "nobody"}, {"reason": 7}])
async def test_a_wrong_cancel(host: Host, arguments: dict[str, Any]) -> None:
    """A cancel on nobody's account isn't one."""
    run = await host.start(request(THINKS))
    with pytest.raises(MisuseError):
        await run.cancel(**arguments)
    with pytest.raises(MisuseError):
        await host.cancel(run.id, **arguments)
    assert not (await run.view()).status.ended


@pytest.mark.parametrize("text", ["", "  ", 7, None, b"a", "x" * 32_769])
async def test_a_wrong_message(host: Host, text: Any) -> None:
    """R55: what is no message is said at the call; the run goes on without it."""
    run = await host.start(request(THINKS))
    with pytest.raises(MisuseError) as raised:
        await run.input(text)
    assert raised.value.fields["param"] == "text"
    await run.input("Mind the tabs.")
    await run.cancel()
    with pytest.raises(PreconditionFailed):
        await run.input("Too late.")
    with pytest.raises(NotFound):
        await host.open_run("nobody").input("Mind the tabs.")


async def test_runs_that_arent_there(host: Host) -> None:
    """An unknown id is told at the call."""
    assert await host.find_run("nobody") is None
    for call in (host.get_run("nobody"), host.cancel("nobody"), host.open_run("nobody").view()):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await host.open_run("nobody").wait()
    with pytest.raises(InvalidRequest):
        await host.cancel("no id", tombstone=True)


@pytest.mark.parametrize("run_id", [7, None, b"run_1", ["run_1"]])
async def test_what_is_no_id(host: Host, run_id: Any) -> None:
    """R55: an id that is no text is told at the call."""
    for call in (host.find_run, host.get_run, host.cancel):
        with pytest.raises(MisuseError) as raised:
            await call(run_id)
        assert raised.value.fields["param"] == "run_id"
    with pytest.raises(MisuseError):
        host.open_run(run_id)


async def test_wrong_lengths_and_inputs(host: Host) -> None:
    """R55: lengths of time, tombstones and hosted executions of a wrong kind are told at the call."""
    lengths: tuple[Any, ...] = ("1", -1, float("nan"), True)
    for length in lengths:
        with pytest.raises(MisuseError) as raised:
            await host.drain(within_ms=length)
        assert raised.value.fields["param"] == "within_ms"
    with pytest.raises(MisuseError):
        await host.cancel("run_1", tombstone=cast("Any", "yes"))
    wanted = HostedInput(
        execution_id="bill-1",
        session=SessionSpec(
            folder="/app", target=ModelTarget(connection_id="a", connection_slug="a", model="m")
        ),
        content="Do it.",
    )
    with pytest.raises(MisuseError):
        await host.hosted().run(cast("Any", {"execution_id": "bill-1"}), Scope())
    with pytest.raises(MisuseError):
        await host.hosted().run(wanted, cast("Any", None))
    assert host.status is HostStatus.READY, "nothing was asked to drain"
    assert host.residencies == {}


@pytest.mark.parametrize("arguments", [{"drain_ms": -1}, {"drain_ms": "1"}, {"door_delivery": "mail"}])
def test_what_a_host_is_not_made_of(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """R55: it is said when the host is made."""
    with pytest.raises(MisuseError) as raised:
        Host(make_config(tmp_path), **arguments)
    assert raised.value.fields["param"] == next(iter(arguments))


async def test_a_closed_host(tmp_path: Path) -> None:
    """Whatever is asked of a host that isn't open, or of its handles, is misuse, and says so at the call."""
    host = Host(make_config(tmp_path))
    with pytest.raises(MisuseError, match="async with"):
        await host.start(request())
    async with host:
        run = await host.start(request())
        await run.wait()
    for call in (
        lambda: host.start(request()),
        lambda: host.run(request()),
        lambda: host.find_run(run.id),
        lambda: host.get_run(run.id),
        lambda: host.cancel(run.id),
        host.drain,
        run.view,
        run.wait,
        run.ended,
        run.cancel,
        lambda: run.input("Mind the tabs."),
    ):
        with pytest.raises(MisuseError, match="isn't open"):
            await call()
    for now in (run.events, run.cancel_nowait, run.acknowledge, host.hosted, host.request_drain):
        with pytest.raises(MisuseError, match="isn't open"):
            now()
    with pytest.raises(MisuseError, match="once"):
        async with host:
            pass


def test_what_isnt_a_config() -> None:
    """It is said when the host is made, not when it is opened."""
    with pytest.raises(MisuseError, match="Config"):
        Host(cast("Any", {"providers": {}}))


async def test_another_loop(host: Host) -> None:
    """A host belongs to its loop; another thread's is told to use the sync twin."""
    found: list[str] = []

    def elsewhere() -> None:
        async def call() -> None:
            with pytest.raises(MisuseError) as raised:
                await host.start(request())
            found.append(raised.value.message)

        asyncio.run(call())
        with pytest.raises(MisuseError):
            host.open_run("a")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "SyncHost" in found[0]


# ---- callbacks


async def test_a_callback_sees_everything(host: Host) -> None:
    """R16: each stored event once and in order, to the terminal; it may be a coroutine function, too."""
    seen: list[Event] = []
    slow: list[Event] = []

    async def slowly(event: Event) -> None:
        await asyncio.sleep(0)
        slow.append(event)

    run = await host.start(request(), on_event=seen.append)
    other = await host.start(request(), on_event=slowly)
    for one, told in ((run, seen), (other, slow)):
        await one.wait()
        stored = [event async for event in one.events() if event.seq is not None]
        async with asyncio.timeout(10):
            while not told or told[-1] != stored[-1]:
                await asyncio.sleep(0.001)
        assert [event for event in told if event.seq is not None] == stored


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_that_raises(host: Host, is_async: bool) -> None:
    """Bad input: it ends its own run, with the cause; its peers go on, with callbacks of their own."""
    broken = ZeroDivisionError("a secret of the caller's")

    def raises(event: Event) -> None:
        if event.type == "tool.started":
            raise broken

    async def raises_later(event: Event) -> None:
        await asyncio.sleep(0)
        raises(event)

    seen: list[str] = []
    run = await host.start(request(WAITS), on_event=raises_later if is_async else raises)
    peer = await host.start(request(), on_event=lambda event: seen.append(event.type))
    with pytest.raises(RunCancelled) as raised:
        await run.wait()
    assert raised.value.__cause__ is broken
    view = await run.view()
    assert view.cancel is not None
    assert view.cancel.reason == "a callback of the caller raised ZeroDivisionError"
    assert "secret" not in view.model_dump_json()
    assert (await peer.wait()).output == "a.txt is new."
    assert "run.started" in seen
    assert (await (await host.start(request())).wait()).output == "a.txt is new."


async def test_a_callback_that_raises_too_late(host: Host) -> None:
    """R5: when the run has ended nothing changes any more."""

    def raises(event: Event) -> None:
        if event.type == "run.completed":
            raise ZeroDivisionError

    run = await host.start(request(), on_event=raises)
    assert (await run.wait()).status.value == "completed"


async def test_a_callback_that_is_cancelled_from_within(host: Host) -> None:
    """A raw cancellation that a callback raises is an error of the callback's like any other."""

    def raises(event: Event) -> None:
        raise asyncio.CancelledError

    run = await host.start(request(WAITS), on_event=raises)
    with pytest.raises(RunCancelled) as raised:
        await run.wait()
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)


async def test_a_callback_that_answers(host: Host) -> None:
    """S12, S77: called while the stream is open, the acknowledgement is taken; the answer decides."""
    answers: list[bool] = []

    def acknowledge(accepted: bool) -> Callable[[Event], None]:
        def on_event(event: Event) -> None:
            if event.type == "run.finalizing":
                asyncio.get_running_loop().call_later(
                    0.05, lambda: answers.append(host.open_run(event.run_id).acknowledge(accepted))
                )

        return on_event

    run = await host.start(request(acknowledge="required"), on_event=acknowledge(True))
    assert (await run.wait()).output == "a.txt is new."
    assert not run.acknowledge()
    refused = await host.start(request(acknowledge="required"), on_event=acknowledge(False))
    assert (await refused.ended()).status.value == "failed"
    assert answers == [True, True]


async def test_a_callback_that_never_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12, R16: it holds up neither its run nor, for long, the end of the host."""
    monkeypatch.setattr("remit.host._watching._CLOSE_WITHIN_S", 0.1)
    async with asyncio.timeout(30):
        async with open_host(tmp_path) as host:
            run = await host.start(request(), on_event=lambda event: asyncio.Event().wait())
            await run.wait()


# ---- states and the end


async def test_the_states_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting, recovering while it sweeps, ready, draining; nothing is admitted before it is ready."""
    seen: list[HostStatus] = []
    host = Host(make_config(tmp_path))

    async def sweep(*_: object, **__: object) -> tuple[()]:
        seen.append(host.status)
        with pytest.raises(MisuseError):
            await host.start(request())
        return ()

    monkeypatch.setattr("remit.host._host.sweep_dead_runs", sweep)
    assert host.status is HostStatus.STARTING
    async with host:
        assert host.status is HostStatus.READY
        run = await host.start(request(THINKS))
        host.request_drain()
        assert host.status is HostStatus.DRAINING
        with pytest.raises(Draining):
            await host.start(request())
        assert not (await run.view()).status.ended, "a drain that is only asked for ends nothing"
    assert seen == [HostStatus.RECOVERING]


async def test_a_drain_waits(host: Host) -> None:
    """R62: what ends in time ends by itself; what doesn't is cancelled at the deadline, code `drain`."""
    short = await host.start(request())
    long = await host.start(request(WAITS))
    async with asyncio.timeout(60):
        host.request_drain()
        assert (await short.wait()).status.value == "completed"
        began = asyncio.get_running_loop().time()
        await host.drain(within_ms=200)
    assert asyncio.get_running_loop().time() - began >= 0.2
    view = await long.view()
    assert view.terminal is not None
    assert (view.terminal.kind, view.terminal.code) == ("cancelled", "drain")
    assert host.residencies == {}
    await host.drain(within_ms=0)


async def test_a_drain_without_a_deadline(host: Host) -> None:
    """It waits for as long as it takes; the wait may be given up."""
    run = await host.start(request(WAITS))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await host.drain()
    assert host.status is HostStatus.DRAINING
    assert not (await run.view()).status.ended
    async with asyncio.TaskGroup() as group:
        group.create_task(host.drain())
        await run.cancel()


async def test_closing_cancels_what_runs(tmp_path: Path) -> None:
    """Leaving the block ends what still runs, queued ones too; by an error no less than without one."""
    ids = ["waits", "thinks"]

    async def use() -> None:
        async with open_host(tmp_path) as host:
            for run_id, text in zip(ids, (WAITS, THINKS), strict=True):
                await host.start(request(text, id=run_id))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    async with open_host(tmp_path) as host:
        assert host.swept == ()
        for run_id in ids:
            view = await host.find_run(run_id)
            assert view is not None
            assert view.terminal is not None
            assert view.terminal.code == "drain"


async def test_closing_waits_as_long_as_it_was_told(tmp_path: Path) -> None:
    """With `drain_ms` a run that ends in time completes."""
    async with open_host(tmp_path, drain_ms=20_000) as host:
        run_id = (await host.start(request())).id
    async with open_host(tmp_path) as host:
        view = await host.find_run(run_id)
        assert view is not None
        assert view.status.value == "completed"


async def test_closing_that_is_cancelled(tmp_path: Path) -> None:
    """A cancel while it closes cuts the wait short, and no more: all is ended and closed."""
    opened = asyncio.Event()

    async def use() -> None:
        async with open_host(tmp_path, drain_ms=60_000) as host:
            await host.start(request(WAITS, id="mine"))
            opened.set()

    using = asyncio.ensure_future(use())  # noqa: TID251 - awaited below
    await opened.wait()
    await asyncio.sleep(0.2)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    async with open_host(tmp_path) as host:
        view = await host.find_run("mine")
        assert view is not None
        assert view.terminal is not None
        assert view.terminal.code == "drain"


async def test_the_order_of_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened last is closed first: runs, engine, link, node, clean-ups, store."""
    closed: list[str] = []

    def note(kind: type, method: str) -> None:
        close = getattr(kind, method)

        async def noting(self: object, *arguments: object) -> object:
            closed.append(kind.__name__)
            return await close(self, *arguments)

        monkeypatch.setattr(kind, method, noting)

    for kind in (EmbeddedEngine, InProcessLink, EmbeddedNode, CleanupScope):
        note(kind, "__aexit__")
    note(SqliteStore, "aclose")
    async with open_host(tmp_path) as host:
        await host.start(request(WAITS))
    assert closed == ["EmbeddedEngine", "InProcessLink", "EmbeddedNode", "CleanupScope", "SqliteStore"]


async def test_an_opening_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened before is closed again, and the error is the one that it was."""
    closed: list[str] = []
    aclose = SqliteStore.aclose

    async def noting(self: SqliteStore) -> None:
        closed.append("store")
        await aclose(self)

    async def broken(*_: object, **__: object) -> None:
        raise ConfigError("no")

    monkeypatch.setattr(SqliteStore, "aclose", noting)
    monkeypatch.setattr("remit.host._host.sweep_dead_runs", broken)
    host = Host(make_config(tmp_path))
    with pytest.raises(ConfigError):
        async with host:
            pass
    assert closed == ["store"]
    with pytest.raises(MisuseError):
        await host.start(request())


async def test_residencies_by_label(host: Host) -> None:
    """The host says why it can't be settled yet."""
    assert host.residencies == {}
    run = await host.start(request(WAITS))
    async for event in run.events():
        if event.type == "tool.started":
            break
    async with asyncio.timeout(10):
        while "tool" not in host.residencies:
            await asyncio.sleep(0.001)
    assert set(host.residencies) == {"pipeline", "stage", "checkout", "tool"}
    await run.cancel()
    assert host.residencies == {}


def test_request_errors_are_told_apart() -> None:
    """What the caller must change and what a program did wrong are different errors."""
    assert not issubclass(MisuseError, RequestError)
