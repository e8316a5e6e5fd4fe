"""The compatible doors beside the native one: their paths, and in which form an error is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from remit.api import anthropic, openai
from remit.api._guard import Receive, Scope, Send
from remit.api._operation import Doors
from remit.api._problems import problem
from remit.api.dialects import (
    Dialect,
    DoorOperation,
    DoorPlace,
    Foreground,
    fault_of,
    refusal,
)
from remit.errors import RemitError

DOOR_OPERATIONS: Final[tuple[DoorOperation, ...]] = (
    *openai.OPERATIONS,
    *anthropic.OPERATIONS,
    *openai.MODELS,
)
"""Every call of the compatible doors."""
_ANTHROPIC_HEADS: Final = frozenset({b"anthropic-version", b"x-api-key"})


def compatible_routes(doors: Doors) -> list[Route]:
    """The paths of the compatible doors."""
    foreground = Foreground(doors.host)
    by_path: dict[str, list[DoorOperation]] = {}
    for operation in DOOR_OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, _BothPlaces(found, doors, foreground)) for path, found in by_path.items()]


class _BothPlaces:
    """A path that speaks the dialect of whoever asks."""

    def __init__(self, operations: Sequence[DoorOperation], doors: Doors, foreground: Foreground) -> None:
        self._places: dict[Dialect, DoorPlace] = {
            dialect: DoorPlace(operations, doors, foreground, dialect)
            for dialect in (openai.OPENAI, anthropic.ANTHROPIC)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope)
        assert dialect is not None, "only paths of the compatible doors come here"
        await self._places[dialect](scope, receive, send)


def dialect_of(scope: Scope) -> Dialect | None:
    """The dialect of a request: by its path, or its head where both doors have it; None: the native API."""
    path: str = scope["path"]
    if path != "/v1" and not path.startswith("/v1/"):
        return None
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return anthropic.ANTHROPIC
    if path.startswith(("/v1/chat/", "/v1/responses")):
        return openai.OPENAI
    heads = {name for name, _ in scope["headers"]}
    return anthropic.ANTHROPIC if heads & _ANTHROPIC_HEADS else openai.OPENAI


def refuse_in_form(scope: Scope, error: RemitError) -> Response:
    """The answer for an error, in the form of the path that it happened on."""
    dialect, request_id = dialect_of(scope), scope["remit.request_id"]
    if dialect is None:
        return problem(error, request_id=request_id)
    return refusal(dialect, fault_of(error), request_id=request_id)
