"""What is a message of the protocol at all. The SDK would answer what isn't with all that stood in it."""

from __future__ import annotations

from typing import Any, Final, cast

from starlette.responses import JSONResponse, Response

from remit.api._guard import Message, Receive
from remit.primitives import StrictJsonError, load_json

_NOT_JSON: Final = (-32_700, "the body isn't JSON")
_NO_MESSAGE: Final = (-32_600, "the body isn't a message of JSON-RPC 2.0")


async def read_body(receive: Receive) -> bytes:
    """A request's whole body; the guard bounds it, in bytes and in time."""
    taken = bytearray()
    more = True
    while more:
        message = await receive()
        taken += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(taken)


def read_again(body: bytes, receive: Receive) -> Receive:
    """The body for the next one who reads, and behind it whatever comes."""
    left = [body]

    async def next_message() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return next_message


def refusal_of(body: bytes) -> Response | None:
    """The answer to what is no message; None: it is one."""
    try:
        value: Any = load_json(body)
    except StrictJsonError:
        return _refused(*_NOT_JSON)
    return None if _is_message(value) else _refused(*_NO_MESSAGE)


def _refused(code: int, message: str) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, 400)


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    given = cast("dict[str, Any]", value)
    if given.get("jsonrpc") != "2.0" or not _is_id(given.get("id", 0)):
        return False
    if "method" in given:
        return isinstance(given["method"], str) and isinstance(given.get("params") or {}, dict)
    error = given.get("error")
    if isinstance(error, dict):
        told = cast("dict[str, Any]", error)
        return isinstance(told.get("code"), int) and isinstance(told.get("message"), str)
    return "id" in given and isinstance(given.get("result"), dict)


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))
