"""Calls on what a run has left behind: history, transcript, artifacts, its ledger."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from remit.api._operation import Answer, Call, Operation, Says, json_answer
from remit.api._runs import get_run
from remit.api._shapes import (
    ArtifactName,
    ArtifactPage,
    AttemptLine,
    HistoryLine,
    HistoryPage,
    RunUsage,
    TranscriptLine,
    TranscriptPage,
)
from remit.contract import Model
from remit.errors import InvalidRequest, NotFound
from remit.primitives import clean_text, usd_from_micros
from remit.runs import AttemptRow
from remit.usage import summarise_attempts

_FURTHER_TYPES = ("text/x-diff", "text/markdown", "application/json")
_SAFE_TYPES = frozenset({"text/plain", *_FURTHER_TYPES})


async def _history(call: Call) -> Answer:
    stored = await get_run(call)
    lines = await call.host.store.read_history(stored.view.id, tenant=call.tenant)
    data = tuple(HistoryLine(at=line.at, type=line.type, data=line.data) for line in lines)
    return json_answer(HistoryPage(data=data))


class TranscriptQuery(Model):
    """Which part of the conversations."""

    stage_id: str | None = None
    cursor: str | None = None
    limit: int = Field(default=200, ge=1, le=1_000)


async def _transcript(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, TranscriptQuery), "as the table says"
    stored = await get_run(call)
    start = _place(query.cursor)
    entries = await call.host.store.read_transcript(
        stored.view.id, stage_id=query.stage_id, tenant=call.tenant
    )
    page = entries[start : start + query.limit]
    more = start + len(page) < len(entries)
    data = tuple(
        TranscriptLine(stage_id=one.stage_id, position=one.position, role=one.role, body=one.body)
        for one in page
    )
    return json_answer(TranscriptPage(data=data, next_cursor=str(start + len(page)) if more else None))


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise InvalidRequest("there is no such place in the list", param="cursor")
    return int(cursor)


async def _artifacts(call: Call) -> Answer:
    stored = await get_run(call)
    names = await call.host.store.list_artifacts(stored.view.id, tenant=call.tenant)
    return json_answer(ArtifactPage(data=tuple(ArtifactName(name=name) for name in names)))


async def _artifact(call: Call) -> Answer:
    stored = await get_run(call)
    name = clean_text(call.path["name"])[0]
    artifact = await call.host.store.read_artifact(stored.view.id, name, tenant=call.tenant)
    if artifact is None:
        raise NotFound("the run has no artifact of that name", param="name")
    # What a run has written is never shown as a page of ours.
    media_type = artifact.media_type.partition(";")[0].strip().lower()
    return Response(
        artifact.text,
        media_type=media_type if media_type in _SAFE_TYPES else "text/plain",
        headers={"Content-Disposition": "attachment"},
    )


async def _usage(call: Call) -> Answer:
    stored = await get_run(call)
    rows = await call.host.store.read_attempts(stored.view.id, tenant=call.tenant)
    bill = summarise_attempts([(row.started, row.ended) for row in rows])
    return json_answer(
        RunUsage(
            data=tuple(map(_attempt, rows)),
            usage=bill.usage,
            cost_usd=bill.cost_usd,
            estimated_max_cost_usd=bill.estimated_max_cost_usd,
        )
    )


def _attempt(row: AttemptRow) -> AttemptLine:
    started, ended = row.started, row.ended
    micros = None if ended is None else ended.cost_micros
    return AttemptLine(
        attempt_id=started.attempt_id,
        stage_id=started.stage_id,
        round=started.round,
        ordinal=started.ordinal,
        model=started.model,
        status=started.status if ended is None else ended.status,
        started_at=row.started_at,
        ended_at=row.ended_at,
        usage=None if ended is None else ended.usage,
        cost_usd=None if micros is None else usd_from_micros(micros),
        price_version=None if ended is None else ended.price_version,
        code=None if ended is None else ended.code,
        detail=None if ended is None else ended.detail,
        provider_request_id=None if ended is None else ended.provider_request_id,
        duration_ms=None if ended is None else ended.duration_ms,
    )


OPERATIONS = (
    Operation(
        id="read_history",
        method="GET",
        path="/api/v1/runs/{id}/history",
        summary="What happened to a run after its terminal.",
        handle=_history,
        scope="read",
        names="run",
        says={200: Says(text="The host log.", shape=HistoryPage)},
    ),
    Operation(
        id="read_transcript",
        method="GET",
        path="/api/v1/runs/{id}/transcript",
        summary="The conversations of a run's stages.",
        handle=_transcript,
        scope="read",
        names="run",
        query=TranscriptQuery,
        says={200: Says(text="A page of messages.", shape=TranscriptPage)},
    ),
    Operation(
        id="list_artifacts",
        method="GET",
        path="/api/v1/runs/{id}/artifacts",
        summary="The names of a run's artifacts.",
        handle=_artifacts,
        scope="read",
        names="run",
        says={200: Says(text="The names.", shape=ArtifactPage)},
    ),
    Operation(
        id="read_artifact",
        method="GET",
        path="/api/v1/runs/{id}/artifacts/{name:path}",
        summary="One artifact.",
        handle=_artifact,
        scope="read",
        names="run",
        says={200: Says(text="Its text.", media_type="text/plain", further_types=_FURTHER_TYPES)},
    ),
    Operation(
        id="read_run_usage",
        method="GET",
        path="/api/v1/runs/{id}/usage",
        summary="Every provider request of a run, with the provider's own usage, and the bill.",
        handle=_usage,
        scope="read",
        names="run",
        says={200: Says(text="The ledger.", shape=RunUsage)},
    ),
)
