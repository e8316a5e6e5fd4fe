"""The whole surface of the embedding API: each parameter refuses what is wrong, at the call that brings it.

What the surface is, is read from the classes: a parameter or a method that is added and not written down
here fails the tests.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from host_kit import THINKS, WAITS, make_config, open_host, request
from remit import Host, MisuseError, RequestError, Run, RunCancelled, Scope, SyncHost, SyncRun, SyncScope
from remit.runs import RunTimes

Wrong = tuple[Any, ...]
TEXTS: Final[Wrong] = (7, b"a", ["a"])
FLAGS: Final[Wrong] = ("no", 0, 1, None)
LENGTHS: Final[Wrong] = ("1", -1, float("nan"), True)
RUN_IDS: Final[Wrong] = (None, *TEXTS)
REASONS: Final[Wrong] = (*TEXTS, "x" * 1001)
REQUESTS: Final[Wrong] = (None, "do it", 7, [("prompt", "a")], {}, {"prompt": 7}, {7: "x"})
STARTS: Final[dict[str, Wrong]] = {
    "request": REQUESTS,
    "idempotency_key": ("", *TEXTS, "k" * 256, "a\x00", "\ud800"),
    "on_event": ("print", 7),
    "scope": ("mine", timedelta(1), object()),
    "deadline": (5, "soon", datetime(2030, 1, 1)),
}
CANCELS: Final[dict[str, Wrong]] = {"by": ("nobody", None, 7, []), "reason": REASONS}
MAKES: Final[dict[str, Wrong]] = {
    "config": (None, {}, "remit.toml"),
    "clock": (7, "now", threading.Event()),
    "ids": (7, str, [].append),
    "times": (7, {}, RunTimes, RunTimes(link_grace_ms=-1)),
    "door_delivery": (None, "mail", []),
    "drain_ms": (None, *LENGTHS),
    "single_run": FLAGS,
    "node_process": FLAGS,
}
HOSTS: Final[dict[str, dict[str, Wrong]]] = {
    "start": STARTS,
    "run": STARTS,
    "dry_run": {"request": REQUESTS},
    "find_run": {"run_id": RUN_IDS},
    "open_run": {"run_id": RUN_IDS},
    "get_run": {"run_id": RUN_IDS},
    "cancel": {"run_id": RUN_IDS, **CANCELS, "tombstone": FLAGS},
    "drain": {"within_ms": LENGTHS},
    "request_drain": {},
    "hosted": {},
    "door": {},
}
RUNS: Final[dict[str, dict[str, Wrong]]] = {
    "events": {"after": (-1, "1", 1.0, True, None, 2**70)},
    "view": {},
    "ended": {"timeout_s": LENGTHS},
    "wait": {"timeout_s": LENGTHS},
    "cancel": CANCELS,
    "cancel_nowait": CANCELS,
    "acknowledge": {"accepted": FLAGS},
    "input": {"text": (None, "", "  ", *TEXTS, "x" * 32_769)},
    "deliver": {"branch": ("", *TEXTS), "unreviewed": FLAGS, "allow_protected": FLAGS},
    "discard": {},
}
SCOPES: Final[dict[str, dict[str, Wrong]]] = {
    "__init__": {"deadline": (5, "soon", datetime(2030, 1, 1)), "clock": (7, "now")},
    "abort": {"reason": REASONS},
}
NEEDED: Final[dict[str, dict[str, Any]]] = {
    "start": {"request": request()},
    "run": {"request": request()},
    "dry_run": {"request": request()},
    "find_run": {"run_id": "a"},
    "open_run": {"run_id": "a"},
    "get_run": {"run_id": "a"},
    "input": {"text": "Mind the tabs."},
}
"""Right arguments of what needs some; `cancel` of a host gets its run's id beside it."""
INSIDE: Final = {"check_loop", "on_abort"}
"""What of a scope is for those who start things in it."""


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def _parameters(function: Callable[..., Any]) -> set[str]:
    kinds = inspect.signature(function).parameters.values()
    return {one.name for one in kinds if one.name != "self" and one.kind is not one.VAR_KEYWORD}


@pytest.mark.parametrize(
    ("kind", "table"),
    [(Host, HOSTS), (SyncHost, HOSTS), (Run, RUNS), (SyncRun, RUNS), (Scope, SCOPES), (SyncScope, SCOPES)],
)
def test_each_parameter_is_looked_at(kind: type, table: dict[str, dict[str, Wrong]]) -> None:
    """Bad input: no parameter of the surface, old or new, is missing from this page."""
    methods = {name: one for name, one in _methods(kind).items() if name not in INSIDE}
    assert set(methods) <= set(table), "a method that nobody has called wrongly yet"
    for name, method in methods.items():
        assert _parameters(method) <= set(table[name]), (
            f"{kind.__name__}.{name} takes more than is tried here"
        )
    if issubclass(kind, Host | SyncHost):
        assert _parameters(kind.__init__) <= set(MAKES)
    if issubclass(kind, Scope | SyncScope):
        assert _parameters(kind.__init__) <= set(table["__init__"])


def _cases(kind: type, table: dict[str, dict[str, Wrong]]) -> Iterator[tuple[str, str, Any]]:
    for name, method in _methods(kind).items():
        for parameter in sorted(_parameters(method) & set(table.get(name, {}))):
            for value in table[name][parameter]:
                yield name, parameter, value


def _arguments(name: str, parameter: str, value: Any, **more: Any) -> dict[str, Any]:
    return {**NEEDED.get(name, {}), **more, parameter: value}


def _is_told(error: BaseException | None, parameter: str) -> bool:
    """Whether it is the documented error: misuse, or of a request that must be changed."""
    return isinstance(error, MisuseError | RequestError) and (
        parameter == "request" or error.fields.get("param") in (parameter, "Idempotency-Key")
    )


async def _error_of(call: Callable[[], Any]) -> BaseException | None:
    try:
        answer = call()
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        return error
    return None


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[Host]:
    async with open_host(tmp_path) as made:
        yield made


async def test_wrong_arguments_of_a_host(host: Host) -> None:
    """Bad input, R55: each wrong argument of each method is told by its name; nothing is stored or ended."""
    for name, parameter, value in _cases(Host, HOSTS):
        more = {"run_id": "a"} if name == "cancel" else {}
        arguments = _arguments(name, parameter, value, **more)
        error = await _error_of(lambda n=name, a=arguments: getattr(host, n)(**a))
        assert _is_told(error, parameter), (name, parameter, value, error)
    assert (await host.store.list_runs())[0] == ()
    assert (host.status.value, host.residencies) == ("ready", {})


async def test_wrong_arguments_of_a_run(host: Host) -> None:
    """Bad input, R55: the same for a handle; the run goes on as if nothing had been said."""
    run = await host.start(request(THINKS))
    for name, parameter, value in _cases(Run, RUNS):
        arguments = _arguments(name, parameter, value)
        error = await _error_of(lambda n=name, a=arguments: getattr(run, n)(**a))
        assert _is_told(error, parameter), (name, parameter, value, error)
    view = await run.view()
    assert (view.status.ended, view.cancel_requested) == (False, False)


def test_wrong_arguments_of_the_twins(tmp_path: Path) -> None:
    """Bad input, R55: the sync twins say the same, where they are called."""
    with SyncHost(make_config(tmp_path)) as host:
        for name, parameter, value in _cases(SyncHost, HOSTS):
            more = {"run_id": "a"} if name == "cancel" else {}
            with pytest.raises((MisuseError, RequestError)) as raised:
                getattr(host, name)(**_arguments(name, parameter, value, **more))
            assert _is_told(raised.value, parameter), (name, parameter, value)
        run = host.start(request(THINKS))
        for name, parameter, value in _cases(SyncRun, RUNS):
            with pytest.raises((MisuseError, RequestError)) as raised:
                getattr(run, name)(**_arguments(name, parameter, value))
            assert _is_told(raised.value, parameter), (name, parameter, value)
        with pytest.raises(TimeoutError):
            run.ended(timeout_s=0)
        assert not run.view().cancel_requested


@pytest.mark.parametrize("kind", [Host, SyncHost])
def test_what_no_host_is_made_of(tmp_path: Path, kind: Callable[..., object]) -> None:
    """Bad input, R55: said when it is made, not when it is opened or closed."""
    for parameter, values in MAKES.items():
        for value in values:
            arguments = {"config": make_config(tmp_path), parameter: value}
            with pytest.raises(MisuseError) as raised:
                kind(**arguments)
            assert str(raised.value.fields["param"]).startswith(parameter), (parameter, value)


@pytest.mark.parametrize("kind", [Scope, SyncScope])
def test_what_no_scope_is_made_of(kind: type[Scope | SyncScope]) -> None:
    """Bad input, R55: the same for scopes; a wrong abort ends nothing."""
    for parameter in _parameters(kind.__init__):
        for value in SCOPES["__init__"][parameter]:
            with pytest.raises(MisuseError) as raised:
                kind(**{parameter: value})
            assert raised.value.fields["param"] == parameter
    scope = kind()
    for reason in REASONS:
        with pytest.raises(MisuseError):
            scope.abort(reason)
    assert not scope.aborted
    assert scope.abort("nobody needs it")


# ---- closed, elsewhere


def _calls(thing: Host | Run | SyncHost | SyncRun) -> Iterator[Callable[[], Any]]:
    for name in _methods(type(thing)):
        more = {"run_id": "a"} if name == "cancel" and isinstance(thing, Host | SyncHost) else {}
        arguments = {**NEEDED.get(name, {}), **more}
        yield lambda n=name, a=arguments: getattr(thing, n)(**a)


async def test_everything_of_a_closed_host(tmp_path: Path) -> None:
    """Bad input: before it is opened and after it is closed, each method of it and of its runs is misuse."""
    host = Host(make_config(tmp_path))
    before = [await _error_of(call) for call in _calls(host)]
    async with host:
        run = await host.start(request())
        await run.wait()
    after = [await _error_of(call) for thing in (host, run) for call in _calls(thing)]
    assert {type(error) for error in (*before, *after)} == {MisuseError}
    for name, _ in inspect.getmembers(Host, lambda one: isinstance(one, property)):
        if name not in ("status", "residencies"):
            with pytest.raises(MisuseError):
                getattr(host, name)


async def test_everything_on_another_loop(host: Host) -> None:
    """Bad input: each method is refused elsewhere than on the host's own loop, and nothing has happened."""
    run = await host.start(request(THINKS))
    errors: list[BaseException | None] = []

    async def call_all() -> None:
        errors.extend([await _error_of(call) for thing in (host, run) for call in _calls(thing)])

    await asyncio.to_thread(asyncio.run, call_all())
    assert {type(error) for error in errors} == {MisuseError}
    assert host.status.value == "ready"
    assert not (await run.view()).cancel_requested


def test_everything_of_a_closed_twin(tmp_path: Path) -> None:
    """Bad input: the same for the sync twins, and for what is called on the host's own thread and waits."""
    host = SyncHost(make_config(tmp_path))
    heard: list[type[BaseException]] = []

    def on_event(_: object) -> None:
        if not heard:
            for call in (lambda: host.start(request()), lambda: host.cancel("a"), host.drain):
                with pytest.raises(MisuseError) as raised:
                    call()
                heard.append(raised.type)

    with host:
        run = host.start(request(), on_event=on_event)
        run.wait()
    assert heard == [MisuseError] * 3
    for thing in (host, run):
        for call in _calls(thing):
            with pytest.raises(MisuseError):
                call()


# ---- scopes and callbacks, whatever they do


async def test_an_abort_from_elsewhere(host: Host) -> None:
    """Bad input: it is refused and ends nothing; the same abort from the right place still counts."""
    scope = Scope()
    run = await host.start(request(THINKS), scope=scope)
    with pytest.raises(MisuseError, match="SyncScope"):
        await asyncio.to_thread(scope.abort)
    assert not scope.aborted

    async def start_elsewhere() -> None:
        with pytest.raises(MisuseError, match="SyncScope"):
            await Host(host.config).start(request(), scope=scope)

    await asyncio.to_thread(asyncio.run, start_elsewhere())
    assert scope.abort("nobody needs it")
    view = await run.ended()
    assert view.cancel is not None
    assert view.cancel.reason == "nobody needs it"


class _Odd(BaseException):
    """What `except Exception` doesn't catch, as test runners and other event loops raise."""


@pytest.mark.parametrize("raised", [_Odd("why"), GeneratorExit(), asyncio.CancelledError()])
async def test_a_callback_that_raises_anything(host: Host, raised: BaseException) -> None:
    """Bad input: whatever a callback raises ends its run only, with the cause: no host, no caller."""

    def raises(_: object) -> None:
        raise raised

    peer = await host.start(request())
    run = await host.start(request(WAITS), on_event=raises)
    with pytest.raises(RunCancelled) as cancelled:
        await run.wait()
    assert cancelled.value.__cause__ is raised
    assert (await peer.wait()).status.value == "completed"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "the task that opened the host isn't to blame"


async def test_events_of_nothing(host: Host) -> None:
    """Bad input: a viewer of what isn't there, or isn't there yet, is told so, and never waits for ever."""
    with pytest.raises(RequestError, match="no run"):
        await anext(host.open_run("nobody").events())
    run = await host.start(request())
    await run.wait()
    last = [event async for event in run.events()][-1].seq
    assert last is not None
    assert [event async for event in run.events(after=last)] == []
    with pytest.raises(RequestError, match="no event"):
        await anext(run.events(after=last + 1))
