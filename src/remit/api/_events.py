"""Calls on a run's events: as a stream, or as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import Field
from starlette.responses import Response

from remit.api._operation import Answer, Call, Operation, Says, json_answer
from remit.api._runs import MAX_PAGE, get_run
from remit.api._shapes import EventPage
from remit.contract import Model
from remit.errors import InvalidRequest
from remit.runs import StoredRun

_MOST_DIGITS: Final = 15


class EventsQuery(Model):
    """From where on."""

    after: int | None = Field(default=None, ge=0, le=10**_MOST_DIGITS)
    """The number of the last event that was seen."""
    limit: int = Field(default=MAX_PAGE, ge=1, le=1_000)
    """Of a page."""


async def _events(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, EventsQuery), "as the table says"
    stored = await get_run(call)
    after = _last_seen(call.headers, query.after)
    if after > stored.last_seq:
        raise InvalidRequest(
            f"the run has no event {after} yet: its last one is {stored.last_seq}", param="after"
        )
    if _wants_page(call.headers):
        return await _page(call, stored, after, query.limit)
    if stored.view.status.ended and after == stored.last_seq:
        return Response(status_code=204)  # nothing will come: a browser then stops asking
    events = call.host.feed.follow(stored.view.id, after=after, tenant=call.tenant)

    async def is_allowed() -> bool:
        return await call.doors.keyring.still(call.identity)

    return call.doors.streams.new(events, is_allowed=is_allowed)


async def _page(call: Call, stored: StoredRun, after: int, limit: int) -> Answer:
    events = await call.host.store.read_events(
        stored.view.id, after=after, limit=limit + 1, tenant=call.tenant
    )
    page = events[:limit]
    more = len(events) > limit and bool(page)
    return json_answer(EventPage(data=page, next_cursor=str(page[-1].seq) if more else None))


def _last_seen(headers: Mapping[bytes, bytes], after: int | None) -> int:
    """Where to go on: what a reconnecting reader says counts before what the address says.

    Raises:
        InvalidRequest: It isn't the number of an event.
    """
    seen = headers.get(b"last-event-id")
    if seen is None or not seen.strip():
        return after or 0
    if not seen.isdigit() or len(seen) > _MOST_DIGITS:
        raise InvalidRequest("Last-Event-ID is the number of an event", param="Last-Event-ID")
    return int(seen)


def _wants_page(headers: Mapping[bytes, bytes]) -> bool:
    accept = headers.get(b"accept", b"").lower()
    return b"application/json" in accept and b"text/event-stream" not in accept


OPERATIONS = (
    Operation(
        id="read_events",
        method="GET",
        path="/api/v1/runs/{id}/events",
        summary="A run's events as they come, to its terminal; as a page with `Accept: application/json`.",
        handle=_events,
        scope="read",
        names="run",
        query=EventsQuery,
        headers={"Last-Event-ID": "The number of the last event that was seen; counts before `after`."},
        says={
            200: Says(text="Server-sent events (or a page).", shape=EventPage),
            204: Says(text="The run has ended, and its terminal was seen.", media_type=""),
        },
        errors=("quota_exceeded",),
    ),
)
