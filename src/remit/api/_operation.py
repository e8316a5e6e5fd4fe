"""One call of the API: what it is reached by, who may make it, what it takes, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from remit.admission import Caller
from remit.api._guard import AsgiApp
from remit.api._keys import Identity, Keyring
from remit.api._ports import ServedHost
from remit.api._settings import DoorSettings
from remit.api._streams import Streams
from remit.api._traffic import Traffic
from remit.contract import Model, Scope
from remit.errors import InternalError
from remit.primitives import dump_json, escape_separators

Named = Literal["run", "session", "work"]
"""What the id in a path names. Somebody else's answers exactly as one that doesn't exist (R78)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What all calls share."""

    host: ServedHost
    settings: DoorSettings
    keyring: Keyring
    traffic: Traffic
    streams: Streams
    openapi: Callable[[], Mapping[str, Any]]
    """The description of all calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that may be made, with what came along."""

    doors: Doors
    request: Request
    headers: Mapping[bytes, bytes]
    path: Mapping[str, str]
    query: Model
    body: Any
    """The parsed body; None where there is none."""
    found_identity: Identity | None
    """None where the call needs no key."""

    @property
    def host(self) -> ServedHost:
        """The host."""
        return self.doors.host

    @property
    def identity(self) -> Identity:
        """Who calls."""
        if self.found_identity is None:
            raise InternalError("a call without a key asks who it comes from")
        return self.found_identity

    @property
    def caller(self) -> Caller:
        """Who calls, as admission is told."""
        return self.identity.caller

    @property
    def tenant(self) -> str:
        """Whose things are seen."""
        return self.identity.tenant


Answer: TypeAlias = Response | AsgiApp
Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """One answer of a call, for its description."""

    text: str
    shape: type[Model] | None = None
    """None: `media_type` says what comes."""
    other: type[Model] | None = None
    """What comes instead where the call asked for something else."""
    media_type: str = "application/json"
    further_types: tuple[str, ...] = ()
    """Other content types that the same text may come as."""


class NoQuery(Model):
    """A call without parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call."""

    id: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    """With `{names}`; `{name:path}` takes slashes too."""
    summary: str
    handle: Handler
    scope: Scope | None
    """What a key must allow; None: no key is needed."""
    says: Mapping[int, Says]
    query: type[Model] = NoQuery
    body: type[Model] | None = None
    body_required: bool = True
    names: Named | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Request headers that mean something here -> what."""
    errors: tuple[str, ...] = ()
    """Codes of errors beyond those that any call may answer."""


def json_answer(shape: Model, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A shape as JSON, every key present."""
    return Response(
        escape_separators(shape.model_dump_json()),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


def plain_json(value: Any, status: int = 200) -> Response:
    """Any JSON value."""
    return Response(dump_json(value), status_code=status, media_type="application/json")
