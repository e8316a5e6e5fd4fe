"""The paths of the compatible doors, and in which dialect an error on them is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from remit.api._guard import Receive, Scope, Send
from remit.api._keys import Identity, origin_of
from remit.api._operation import Doors
from remit.api._reading import read_json_bytes
from remit.api.dialects._calls import DoorCall, DoorOperation
from remit.api.dialects._dialect import Dialect
from remit.api.dialects._foreground import Foreground
from remit.errors import MalformedRequest, MethodNotAllowed

_MAX_FIELDS: Final = 100


class DoorPlace:
    """One path of a compatible door, with the calls that it takes.

    Args:
        operations: The path's.
        doors: What all calls share.
        foreground: Who waits for which run.
        dialect: In which the path speaks, told by the request's head.
    """

    def __init__(
        self, operations: Sequence[DoorOperation], doors: Doors, foreground: Foreground, dialect: Dialect
    ) -> None:
        self._doors = doors
        self._foreground = foreground
        self._dialect = dialect
        self._operations = {operation.method: operation for operation in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            allow = ", ".join(sorted(self._operations))
            raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
        scope["remit.operation"] = operation.id
        answer = await operation.handle(await self._read(operation, scope, receive))
        await answer(scope, receive, send)

    async def _read(self, operation: DoorOperation, scope: Scope, receive: Receive) -> DoorCall:
        """Who calls, and with what; in this order, so that a stranger's body isn't read."""
        request, headers = Request(scope, receive), scope["remit.headers"]
        identity = await self._identify(operation, headers, origin_of(scope))
        content = await request.body() if operation.method == "POST" else b""
        return DoorCall(
            doors=self._doors,
            foreground=self._foreground,
            dialect=self._dialect,
            request=request,
            request_id=scope["remit.request_id"],
            headers=headers,
            path=scope["path_params"],
            query=_query(scope["query_string"]),
            content=content,
            body=read_json_bytes(content),
            identity=identity,
        )

    async def _identify(
        self, operation: DoorOperation, headers: Mapping[bytes, bytes], origin: str | None
    ) -> Identity:
        identity = await self._doors.keyring.identify(with_api_key(headers), origin=origin)
        if not operation.scopes & set(identity.key.scopes):
            identity.require("run")
        return identity


def with_api_key(headers: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """The headers, with a key that came as `x-api-key` where a key is looked for."""
    key = headers.get(b"x-api-key")
    if key is None or (b"authorization" in headers and not key.startswith(b"rk_")):
        return headers
    return {**headers, b"authorization": b"Bearer " + key}


def _query(raw: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise MalformedRequest("the query string can't be read") from None
