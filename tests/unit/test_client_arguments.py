"""The clients: each parameter refuses what is wrong, at the call, before anything is sent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import httpx2
import pytest

from remit import AsyncClient, Client, MisuseError, RequestError

URL: Final = "http://127.0.0.1:7433"
Wrong = tuple[Any, ...]
TEXTS: Final[Wrong] = (7, b"a", ["a"])
FLAGS: Final[Wrong] = ("no", 0, 1, None)
COUNTS: Final[Wrong] = ("1", -1, 1.5, True, None)
RUN_ID: Final[Wrong] = (None, "", "..", "a/b", "\ud800", *TEXTS)
GIVEN: Final[Wrong] = ("", *TEXTS)
REQUESTS: Final[Wrong] = ("do it", 7, [("prompt", "a")], {"metadata": {"x": object()}}, {"x": float("nan")})
WRONG: Final[dict[str, dict[str, Wrong]]] = {
    "__init__": {
        "base_url": (
            7,
            None,
            "",
            "ftp://a",
            "http://",
            "http://[::1",
            "http://a:99999",
            "http://u:p@a",
            "a?b=1",
        ),
        "api_key": ("", " ", "rk_\n", "rk_é", *TEXTS),
        "timeout_s": (None, 0, "1", -1, float("nan"), True),
    },
    "create": {
        "request": REQUESTS,
        "idempotency_key": ("", "a\nb", "é", "k" * 256, *TEXTS),
        "wait_ms": COUNTS,
    },
    "dry_run": {"request": REQUESTS},
    "get": {"run_id": RUN_ID},
    "list": {
        "status": GIVEN,
        "session_id": GIVEN,
        "binding": GIVEN,
        "cursor": GIVEN,
        "limit": (0, "1", True),
    },
    "events": {"run_id": RUN_ID, "after": COUNTS},
    "wait": {"run_id": RUN_ID},
    "cancel": {"run_id": RUN_ID, "reason": TEXTS, "tombstone": FLAGS, "wait_ms": COUNTS},
    "read_events": {"run_id": RUN_ID, "after": COUNTS, "limit": (0, *COUNTS)},
    "input": {"run_id": RUN_ID, "text": (None, "", "  ", *TEXTS)},
    "deliver": {"run_id": RUN_ID, "unreviewed": FLAGS, "allow_protected": FLAGS, "branch": GIVEN},
    "discard": {"run_id": RUN_ID},
    "acknowledge": {"run_id": RUN_ID, "accepted": FLAGS},
    "cancel_work": {"work_id": GIVEN},
    "patch": {"run_id": RUN_ID},
    "read": {"path": GIVEN},
}
FREE: Final = {"transport", "close", "aclose"}
"""What tests hand over, and what takes nothing and may be called twice."""
NEEDED: Final[dict[str, Any]] = {
    "run_id": "run_1",
    "work_id": "run_1.plan",
    "text": "Mind it.",
    "path": "host",
}


def _nothing_is_sent(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"{request.method} {request.url} was sent")


def _client(kind: type[Client | AsyncClient], **arguments: Any) -> Any:
    given: dict[str, Any] = {
        "base_url": URL,
        "transport": httpx2.MockTransport(_nothing_is_sent),
        **arguments,
    }
    return kind(**given)


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: one for name, one in found if name not in FREE and (name == "__init__" or name[0] != "_")}


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters
    return {
        name: one
        for name, one in found.items()
        if name not in {"self", *FREE} and one.kind is not one.VAR_KEYWORD
    }


def _needed(function: Callable[..., Any]) -> dict[str, Any]:
    found = _parameters(function).items()
    return {name: NEEDED[name] for name, one in found if one.default is one.empty}


def _cases(kind: type) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, method in _methods(kind).items():
        for parameter in _parameters(method) if name != "__init__" else ():
            for value in WRONG[name][parameter]:
                yield name, parameter, {**_needed(method), parameter: value}


async def _called(client: Any, name: str, arguments: dict[str, Any]) -> None:
    answer = getattr(client, name)(**arguments)
    if inspect.isawaitable(answer):
        await answer


def _check(error: BaseException | None, case: tuple[str, str, Any]) -> None:
    assert isinstance(error, MisuseError | RequestError), (case, error)
    told = error.fields.get("param", "run_id" if "run_id" in error.fields else None)
    assert case[1] == "request" or told == case[1], (case, error.fields)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_parameter_is_looked_at(kind: type) -> None:
    """Bad input: no parameter of a client, old or new, is missing from this page."""
    for name, method in _methods(kind).items():
        assert set(_parameters(method)) == set(WRONG[name]), name


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_no_client_is_made_of(kind: type[Client | AsyncClient]) -> None:
    """Bad input: said when it is made, and a key is never shown."""
    for parameter, values in WRONG["__init__"].items():
        for value in values:
            with pytest.raises((MisuseError, RequestError)) as raised:
                _client(kind, **{parameter: value})
            assert raised.value.fields["param"] in (parameter, "host")
            assert "rk_" not in raised.value.message


def test_wrong_arguments_of_the_sync_client() -> None:
    """Bad input: each wrong argument is told by its name at the call, also of what is looped over."""
    with _client(Client) as client:
        for case in _cases(Client):
            with pytest.raises((MisuseError, RequestError)) as raised:
                getattr(client, case[0])(**case[2])
            _check(raised.value, case)


async def test_wrong_arguments_of_the_async_client() -> None:
    """Bad input: the same without waiting for an answer."""
    async with _client(AsyncClient) as client:
        for case in _cases(AsyncClient):
            with pytest.raises((MisuseError, RequestError)) as raised:
                await _called(client, case[0], case[2])
            _check(raised.value, case)


def test_a_closed_client() -> None:
    """Bad input: whatever is asked of it afterwards is misuse; closing it again is not."""
    client = _client(Client)
    client.close()
    client.close()
    for name, method in _methods(Client).items():
        if name != "__init__":
            with pytest.raises(MisuseError, match="closed"):
                getattr(client, name)(**_needed(method))


async def test_a_closed_async_client() -> None:
    """Bad input: the same."""
    client = _client(AsyncClient)
    await client.aclose()
    await client.aclose()
    for name, method in _methods(AsyncClient).items():
        if name == "__init__":
            continue
        with pytest.raises(MisuseError, match="closed"):
            await _called(client, name, _needed(method))


def test_an_async_client_on_two_loops() -> None:
    """Bad input: its connections belong to one loop; another one is told to use the sync client."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"status": "ready"})

    client = cast("AsyncClient", _client(AsyncClient, transport=httpx2.MockTransport(answer)))
    assert asyncio.run(client.read("host")) == {"status": "ready"}
    with pytest.raises(MisuseError, match=r"remit\.Client"):
        asyncio.run(client.read("host"))
