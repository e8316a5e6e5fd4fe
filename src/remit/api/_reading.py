"""From what came over the wire to checked shapes: query strings, headers and JSON bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import Request

from remit.contract import Model, say_fault
from remit.errors import InvalidRequest, MalformedRequest
from remit.primitives import StrictJsonError, load_json

_Shape = TypeVar("_Shape", bound=Model)
_MAX_FIELDS: Final = 40
_MAX_KEY_CHARS: Final = 255


def read_query(shape: type[_Shape], raw: bytes) -> _Shape:
    """The query string as a shape.

    Raises:
        InvalidRequest: A parameter is wrong, unknown, or stands twice; `param` names it.
        MalformedRequest: It isn't a query string.
    """
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise MalformedRequest("the query string can't be read") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"the parameter `{_shown(twice)}` stands twice", param=_shown(twice))
    return checked(shape, values, "a parameter of this call")


async def read_json(request: Request) -> Any:
    """The request's body as strict JSON; None where there is none.

    Raises:
        MalformedRequest: It isn't JSON, or not one that is taken.
    """
    return read_json_bytes(await request.body())


def read_json_bytes(body: bytes) -> Any:
    """The same of a body that was read."""
    if not body:
        return None
    try:
        return load_json(body)
    except StrictJsonError as error:
        raise MalformedRequest(f"the body isn't JSON that is taken: {error}") from None


def as_object(value: Any) -> Mapping[str, Any]:
    """The body, if it is an object.

    Raises:
        InvalidRequest: It isn't.
    """
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType] - JSON's keys are text


def checked(shape: type[_Shape], values: Mapping[str, Any], what: str) -> _Shape:
    """Values as a shape.

    Raises:
        InvalidRequest: One is wrong, unknown or missing; `param` names it.
    """
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = _shown(".".join(str(part) for part in first["loc"]))
        if first["type"] == "extra_forbidden":
            raise InvalidRequest(f"`{param}` isn't {what}", param=param) from None
        raise InvalidRequest(f"`{param}`: {say_fault(first)}", param=param) from None


def read_idempotency_key(headers: Mapping[bytes, bytes]) -> str | None:
    """The request's Idempotency-Key; None where there is none.

    Raises:
        InvalidRequest: It isn't 1 to 255 visible ASCII characters.
    """
    raw = headers.get(b"idempotency-key")
    if raw is None:
        return None
    if not 0 < len(raw) <= _MAX_KEY_CHARS or not all(0x20 < byte < 0x7F for byte in raw):
        raise InvalidRequest(
            f"Idempotency-Key is 1 to {_MAX_KEY_CHARS} visible ASCII characters", param="Idempotency-Key"
        )
    return raw.decode("ascii")


def _shown(name: str) -> str:
    """A name that the caller has made up, in a form that can be said back."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name[:100])
