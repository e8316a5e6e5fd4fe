"""What every page is made from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import remit
from remit.admission import Caller
from remit.api._keys import Identity
from remit.api._operation import Doors
from remit.api._ports import ServedHost
from remit.api._runs import unknown_run
from remit.api.dashboard._login import Visitors
from remit.api.dashboard._render import page
from remit.api.dashboard._stories import Stories
from remit.runs import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One look at one page."""

    doors: Doors
    visitors: Visitors
    stories: Stories
    request: Request
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
    def caller(self) -> Caller:
        """Who acts."""
        return self.identity.caller

    @property
    def now(self) -> datetime:
        """The time."""
        return self.host.clock.now()

    def may(self, scope: str) -> bool:
        """Whether the visitor's key allows something."""
        return scope in self.identity.key.scopes

    async def get_run(self) -> StoredRun:
        """The run that the path names. Raises `NotFound`, for another tenant's too."""
        run_id = self.request.path_params["id"]
        stored = await self.host.store.find_run(run_id, tenant=self.tenant)
        if stored is None:
            raise unknown_run(run_id)
        return stored

    def values(self, **more: Any) -> dict[str, Any]:
        """What every template asks for, and more."""
        return {
            "now": self.now,
            "version": remit.__version__,
            "status": self.host.status,
            "places": self.host.places,
            "key_name": self.identity.key.name,
            "tenant": self.tenant,
            "token": self.visitors.token(self.identity),
            "may_run": self.may("run"),
            "path": self.request.url.path,
            **more,
        }

    def page(self, template: str, **more: Any) -> Response:
        """A page of these values."""
        return page(template, self.values(**more))
