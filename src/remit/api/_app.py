"""The doors, put together: guard, routes, and the calls behind them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Final

from starlette.requests import Request
from starlette.routing import Route, Router

from remit.api import _events, _looking, _records, _runs, _usage_report, _watching, _work
from remit.api._compatible import compatible_routes, refuse_in_form
from remit.api._guard import AsgiApp, Guard, Receive, Scope, Send
from remit.api._keys import Identity, Keyring, origin_of
from remit.api._looks import Looks
from remit.api._openapi import openapi_of
from remit.api._operation import Answer, Call, Doors, Operation
from remit.api._ports import ServedHost
from remit.api._reading import read_json, read_query
from remit.api._settings import DoorSettings
from remit.api._streams import Streams
from remit.api._traffic import Traffic
from remit.api.dashboard import Dashboard, takes_form
from remit.api.mcp._door import McpDoor
from remit.errors import InvalidRequest, MethodNotAllowed, NotFound, RemitError
from remit.runs import act_of

OPERATIONS: Final[tuple[Operation, ...]] = (
    *_runs.OPERATIONS,
    *_events.OPERATIONS,
    *_work.OPERATIONS,
    *_records.OPERATIONS,
    *_usage_report.OPERATIONS,
    *_looking.OPERATIONS,
    *_watching.OPERATIONS,
)
"""Every call of the native API. Routes, OpenAPI and the tenancy tests are made from it."""


class App:
    """The doors of one host, as an ASGI application.

    Args:
        host: The host.
        settings: Bounds and names.
    """

    def __init__(self, host: ServedHost, settings: DoorSettings) -> None:
        self.traffic = Traffic(host.clock)
        self.streams = Streams(self.traffic, keep_alive_s=settings.keep_alive_s, most=settings.most_streams)
        doors = Doors(
            host=host,
            settings=settings,
            keyring=Keyring(host.store, host.clock),
            traffic=self.traffic,
            streams=self.streams,
            openapi=cache(partial(openapi_of, OPERATIONS)),
        )
        self.mcp = McpDoor(doors)
        self._guard = Guard(
            _router(OPERATIONS, doors, self.mcp),
            settings=settings,
            ids=host.ids,
            traffic=self.traffic,
            refuse=refuse_in_form,
            takes_form=takes_form,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._guard(scope, receive, send)


def _router(operations: Sequence[Operation], doors: Doors, mcp: McpDoor) -> AsgiApp:
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    routes = [Route(path, _Place(found, doors)) for path, found in by_path.items()]
    routes += [*Dashboard(doors).routes(), *compatible_routes(doors), *mcp.routes()]
    return Router(routes, default=_nowhere, redirect_slashes=False)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("there is no such path")


class _Place:
    """One path, with the calls that it takes."""

    def __init__(self, operations: Sequence[Operation], doors: Doors) -> None:
        self._doors = doors
        self._looks = Looks(doors.host.clock)
        self._operations: dict[str, Operation] = {operation.method: operation for operation in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get(scope["method"])
        if operation is None:
            allow = ", ".join(sorted(self._operations))
            raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
        scope["remit.operation"] = operation.id
        identity = None
        if operation.scope is not None:
            identity = await self._doors.keyring.identify(scope["remit.headers"], origin=origin_of(scope))
        if operation.scope == "admin" and identity is not None:
            answer = await self._audited(operation, identity, scope, receive)
        else:
            answer = await self._answer(operation, identity, scope, receive)
        await answer(scope, receive, send)

    async def _answer(
        self, operation: Operation, identity: Identity | None, scope: Scope, receive: Receive
    ) -> Answer:
        if operation.scope is not None and identity is not None:
            identity.require(operation.scope)
        return await operation.handle(await self._read(operation, identity, scope, receive))

    async def _audited(
        self, operation: Operation, identity: Identity, scope: Scope, receive: Receive
    ) -> Answer:
        """The answer of a call that needs the scope `admin`: it goes on the audit record, refused or not.

        One that only looks does so once an hour: who collects metrics would fill the record.
        """
        outcome = "internal"
        try:
            answer = await self._answer(operation, identity, scope, receive)
            outcome = "done"
            return answer
        except RemitError as error:
            outcome = error.code
            raise
        finally:
            if operation.method != "GET" or self._looks.is_news(identity, operation.id, outcome):
                act = act_of(identity.caller, "admin.called", f"call {operation.id}", outcome=outcome)
                await self._doors.host.record(act, tenant=identity.tenant)
                self._looks.remember(identity, operation.id, outcome)

    async def _read(
        self, operation: Operation, identity: Identity | None, scope: Scope, receive: Receive
    ) -> Call:
        """Who calls, and with what; in this order, so that a stranger's body isn't read."""
        request, headers = Request(scope, receive), scope["remit.headers"]
        query = read_query(operation.query, scope["query_string"])
        body = None
        if operation.method != "GET":
            body = await read_json(request)
            if body is None and operation.body is not None and operation.body_required:
                raise InvalidRequest("the body is missing: send a JSON object")
            if body is not None and operation.body is None and body != {}:
                raise InvalidRequest("this call takes no body")
        return Call(
            doors=self._doors,
            request=request,
            headers=headers,
            path=scope["path_params"],
            query=query,
            body=body,
            found_identity=identity,
        )
