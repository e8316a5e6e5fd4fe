"""The dashboard's routes: who may see a page, and what becomes of an error on one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from remit.api._guard import AsgiApp, Receive, Scope, Send
from remit.api._keys import Identity, origin_of
from remit.api._operation import Doors
from remit.api._problems import known_error
from remit.api.dashboard import _actions, _pages, _run_page, _sessions_page
from remit.api.dashboard._login import Visitors, read_form
from remit.api.dashboard._render import STATIC, page, static_file
from remit.api.dashboard._stories import Stories
from remit.api.dashboard._view import View
from remit.errors import MethodNotAllowed, NotFound, RemitError, Unauthenticated

_FORMS: Final = re.compile(r"/(?:login|logout|runs/[A-Za-z0-9_-]{1,128}/(?:cancel|deliver|discard))")
_NO_KEY: Final = "This is no key of this host, or one that was revoked or has expired."
Page: TypeAlias = Callable[[View], Awaitable[Response | AsgiApp]]


def takes_form(path: str) -> bool:
    """Whether a path takes a form instead of JSON."""
    return _FORMS.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class _Rule:
    path: str
    method: Literal["GET", "POST"]
    handle: Page


_RULES: Final = (
    _Rule("/", "GET", _pages.runs),
    _Rule("/runs/{id}", "GET", _run_page.run),
    _Rule("/runs/{id}/stages/{stage_id}", "GET", _run_page.stage),
    _Rule("/runs/{id}/patch", "GET", _run_page.patch),
    _Rule("/runs/{id}/live", "GET", _run_page.live),
    _Rule("/runs/{id}/cancel", "POST", _actions.cancel),
    _Rule("/runs/{id}/deliver", "POST", _actions.deliver),
    _Rule("/runs/{id}/discard", "POST", _actions.discard),
    _Rule("/sessions", "GET", _sessions_page.sessions),
    _Rule("/nodes", "GET", _pages.nodes),
    _Rule("/usage", "GET", _pages.usage),
    _Rule("/work", "GET", _pages.work),
)


class Dashboard:
    """The pages of one host."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._visitors = Visitors(doors.keyring, scheme=doors.settings.scheme)
        self._stories = Stories()

    def routes(self) -> list[Route]:
        """For the router of all doors."""
        own = [
            Route("/login", _Outside({"GET": self._ask, "POST": self._log_in})),
            Route("/logout", _Outside({"POST": self._log_out})),
            Route("/static/{name}", _Outside({"GET": _static})),
        ]
        return own + [Route(rule.path, _Inside(self, rule)) for rule in _RULES]

    async def view(self, request: Request) -> View:
        """What a page is made from. Raises `Unauthenticated`."""
        identity = await self._visitors.identify(request)
        return self._view(request, identity)

    def _view(self, request: Request, identity: Identity) -> View:
        return View(
            doors=self._doors,
            visitors=self._visitors,
            stories=self._stories,
            request=request,
            identity=identity,
        )

    # ---- without a key

    async def _ask(self, request: Request) -> Response:
        return self._login_page(request, None)

    def _login_page(self, request: Request, problem: str | None, status: int = 200) -> Response:
        values = {"token": self._visitors.token(None), "problem": problem}
        return page("login.html", values, status)

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request)
        self._visitors.check_form(form, None)
        key = form.get("key", "")
        try:
            identity = await self._visitors.identify_key(key, origin=origin_of(request.scope))
            identity.require("read")
        except Unauthenticated as error:
            return self._login_page(request, _NO_KEY, error.status)
        except RemitError as error:
            return self._login_page(request, error.message, error.status)
        response = RedirectResponse("/", 303)
        self._visitors.welcome(response, key)
        return response

    async def _log_out(self, request: Request) -> Response:
        identity = await self._visitors.identify(request)
        self._visitors.check_form(await read_form(request), identity)
        response = RedirectResponse("/login", 303)
        self._visitors.forget(response)
        return response


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise NotFound("there is no such file")
    kept = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
    return Response(static_file(name), media_type=STATIC[name], headers={"Cache-Control": kept})


class _Outside:
    """A path that needs no key."""

    def __init__(self, handlers: dict[str, Callable[[Request], Awaitable[Response]]]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        scope["remit.operation"] = "dashboard"
        try:
            if method not in self._handlers:
                allow = ", ".join(sorted(self._handlers))
                raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
            answer = await self._handlers[method](Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - a person gets a page, whatever happens
            answer = _error_page(known_error(error))
        await answer(scope, receive, send)


class _Inside:
    """A path that is seen with a key; without one the way leads to the login."""

    def __init__(self, dashboard: Dashboard, rule: _Rule) -> None:
        self._dashboard = dashboard
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["remit.operation"] = "dashboard"
        await (await self._answer(scope, receive))(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | AsgiApp:
        if scope["method"] == "HEAD" and self._rule.path == "/":
            return Response()  # how some clients ask whether anybody is here
        try:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            if method != self._rule.method:
                raise MethodNotAllowed(f"this path takes {self._rule.method}", allow=self._rule.method)
            view = await self._dashboard.view(Request(scope, receive))
            view.identity.require("read")
            return await self._rule.handle(view)
        except Unauthenticated:
            return RedirectResponse("/login", 303)
        except Exception as error:  # noqa: BLE001 - a person gets a page, whatever happens
            return _error_page(known_error(error))


def _error_page(error: RemitError) -> Response:
    return page("error.html", {"status": error.status, "message": error.message}, error.status)
