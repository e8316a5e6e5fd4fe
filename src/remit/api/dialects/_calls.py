"""One call of a compatible door: who makes it, and what came along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from starlette.requests import Request
from starlette.responses import Response

from remit.api._guard import AsgiApp
from remit.api._keys import Identity
from remit.api._operation import Doors
from remit.api._ports import ServedHost
from remit.api.dialects._dialect import Dialect
from remit.api.dialects._fields import Fields
from remit.api.dialects._foreground import Foreground, ask_id
from remit.errors import InvalidRequest
from remit.primitives import dump_json

_SESSION_HEADER: Final = b"x-openwebui-chat-id"
_MOST_RETRIES_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorCall:
    """One call that may be made."""

    doors: Doors
    foreground: Foreground
    dialect: Dialect
    request: Request
    request_id: str
    headers: Mapping[bytes, bytes]
    path: Mapping[str, str]
    query: Mapping[str, str]
    """What the client put there; most of it means nothing here."""
    content: bytes
    """The body as it came."""
    body: Any
    """The same, parsed; None where there is none."""
    identity: Identity

    @property
    def host(self) -> ServedHost:
        """The host."""
        return self.doors.host

    @property
    def tenant(self) -> str:
        """Whose things are seen."""
        return self.identity.tenant

    @property
    def fields(self) -> Fields:
        """The body.

        Raises:
            InvalidRequest: It isn't an object, or there is none.
        """
        if not isinstance(self.body, dict):
            raise InvalidRequest("send a JSON object")
        return cast("Fields", self.body)  # pyright: ignore[reportUnknownMemberType] - JSON's keys are text

    @property
    def is_retry(self) -> bool:
        """Whether a client library says that it sends this once more."""
        count = self.headers.get(b"x-stainless-retry-count", b"")
        return count.isdigit() and len(count) <= _MOST_RETRIES_DIGITS and int(count) > 0

    @property
    def ask(self) -> str:
        """What a repetition of this call has in common with it."""
        key = self.identity.key
        session = self.headers.get(_SESSION_HEADER, b"")
        return ask_id(
            key.tenant.encode(), key.id.encode(), self.request.url.path.encode(), session, self.content
        )

    @property
    def front_session(self) -> str | None:
        """The chat that a front end's header names."""
        value = self.headers.get(_SESSION_HEADER)
        return value.decode("latin-1").strip() or None if value is not None else None

    def answer(self, body: Any, *, status: int = 200, run_id: str | None = None) -> Response:
        """JSON, with what every answer has in its head."""
        headers = self.dialect.headers(request_id=self.request_id)
        if run_id is not None:
            headers["X-Remit-Run-Id"] = run_id
        return Response(dump_json(body), status_code=status, media_type="application/json", headers=headers)


DoorAnswer: TypeAlias = Response | AsgiApp
DoorHandler: TypeAlias = Callable[[DoorCall], Awaitable[DoorAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorOperation:
    """One call of a compatible door."""

    id: str
    method: Literal["GET", "POST"]
    path: str
    handle: DoorHandler
    scopes: frozenset[str] = frozenset({"run"})
    """A key needs one of them."""
