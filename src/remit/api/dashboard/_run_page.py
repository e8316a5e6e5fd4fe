"""Pages of one run: the whole of it, one stage's conversation, its patch, and its events as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from starlette.responses import Response

from remit.api._guard import AsgiApp
from remit.api._ports import WorkRow
from remit.api._work import nest
from remit.api.dashboard._diff import Diff, read_diff
from remit.api.dashboard._plots import timeline_of
from remit.api.dashboard._render import first_line, page, shown
from remit.api.dashboard._story import RoundTold, StageTold, Story
from remit.api.dashboard._view import View
from remit.contract import RunView
from remit.errors import InvalidRequest, NotFound
from remit.events import TranscriptEntry
from remit.runs import StoredRun, newest_delivery
from remit.usage import summarise_attempts

MOST_ROUNDS: Final = 25
"""Rounds of a stage on the run's page: the last ones; its own page has all."""
_MESSAGES: Final = 60
_MOST_MESSAGE: Final = 20_000


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage, frozen at one moment."""

    stage: StageTold
    status: str
    seconds: float
    rounds: tuple[RoundTold, ...]
    left_out: int
    attempts: int
    tools: int


async def run(view: View) -> Response:
    """What a run did, why it ended, and what it cost."""
    stored = await view.get_run()
    story = await view.stories.read(view.host.store, stored.view.id, tenant=view.tenant)
    values = await _values(view, stored, story)
    # A large page takes a while to write; nothing in the values changes any more.
    return await asyncio.to_thread(page, "run.html", view.values(**values))


async def _values(view: View, stored: StoredRun, story: Story) -> dict[str, Any]:
    store, tenant = view.host.store, view.tenant
    run = view.host.placed(stored.view, tenant=tenant)
    history = await store.read_history(run.id, tenant=tenant) if run.status.ended else ()
    patch = await store.read_artifact(run.id, "patch", tenant=tenant)
    attempts = await store.read_attempts(run.id, tenant=tenant)
    bill = summarise_attempts([(row.started, row.ended) for row in attempts])
    usage = run.usage or bill.usage
    return {
        "run": run,
        "prompt": story.prompt,
        "asked": first_line(story.prompt),
        "delivery": newest_delivery(run, history),
        "history": history,
        "stages": _rows(view, story),
        "timeline": timeline_of(story, now=view.now),
        "notes": tuple(story.notes),
        "base_checks": story.base_checks,
        "checks": run.checks or tuple(story.checks),
        "prepared_notes": story.prepared_notes,
        "tree": () if run.status.ended else nest(_live_work(view, run)),
        "pids": {} if run.status.ended else await view.host.running_calls(tenant=tenant),
        "diff": None if patch is None else _diff(patch.text),
        "usage": usage,
        "stage_costs": sorted(usage.by_stage.items(), key=_in_order),
        "cost_usd": run.cost_usd if run.status.ended else bill.cost_usd,
        "estimate_usd": run.estimated_max_cost_usd if run.status.ended else bill.estimated_max_cost_usd,
        "took": _took_s(view, run),
        "last_seq": story.seq,
        "protected": run.review is not None
        and any(flag.startswith("protected:") for flag in run.review.flags),
        "deliverable": _deliverable(run, newest_delivery(run, history)),
    }


def _in_order(share: tuple[str, object]) -> int:
    order = ("plan", "work", "review")
    return order.index(share[0]) if share[0] in order else len(order)


def _took_s(view: View, run: RunView) -> float | None:
    return None if run.started_at is None else ((run.ended_at or view.now) - run.started_at).total_seconds()


@lru_cache(maxsize=8)
def _diff(text: str) -> Diff:
    return read_diff(text)


def _rows(view: View, story: Story) -> tuple[StageRow, ...]:
    return tuple(
        StageRow(
            stage=stage,
            status=stage.status,
            seconds=stage.seconds(view.now),
            rounds=tuple(
                RoundTold(number=one.number, attempts=list(one.attempts), tools=list(one.tools))
                for one in stage.rounds[-MOST_ROUNDS:]
            ),
            left_out=max(0, len(stage.rounds) - MOST_ROUNDS),
            attempts=sum(len(one.attempts) for one in stage.rounds),
            tools=sum(len(one.tools) for one in stage.rounds),
        )
        for stage in story.stages
    )


def _live_work(view: View, run: RunView) -> list[WorkRow]:
    rows: list[WorkRow] = []
    after: str | None = None
    while True:
        part, after = view.host.work_page(run, tenant=view.tenant, after=after, limit=128)
        rows += part
        if after is None:
            return rows


def _deliverable(run: RunView, delivery: Any) -> str | None:
    """What may be done with the patch: `approve` a waiting one, `apply` a stored one, or nothing."""
    if delivery is not None and delivery.status == "awaiting_approval":
        return "approve"
    if not run.status.ended or run.patch is None or run.patch.files == 0 or run.workspace is None:
        return None
    if delivery is not None and delivery.status == "discarded":
        return None
    if delivery is not None and delivery.status == "delivered" and delivery.mode != "patch":
        return None
    return "apply"


# ---- one stage


async def stage(view: View) -> Response:
    """A stage's conversation, a page of it."""
    stored, stage_id = await view.get_run(), view.request.path_params["stage_id"]
    entries = await view.host.store.read_transcript(stored.view.id, stage_id=stage_id, tenant=view.tenant)
    if not entries:
        raise NotFound("the run has no such stage", param="stage_id")
    start = _start(view.request.query_params.get("from"), len(entries))
    part = entries[start : start + _MESSAGES]
    return view.page(
        "stage.html",
        run=stored.view,
        stage_id=stage_id,
        messages=[_message(entry) for entry in part],
        start=start,
        total=len(entries),
        earlier=max(0, start - _MESSAGES) if start else None,
        later=start + _MESSAGES if start + _MESSAGES < len(entries) else None,
    )


def _start(asked: str | None, total: int) -> int:
    if asked is None:
        return max(0, total - _MESSAGES)
    if not (asked.isascii() and asked.isdigit() and len(asked) < 8):
        raise InvalidRequest("`from` is the number of a message", param="from")
    return int(asked)


def _message(entry: TranscriptEntry) -> dict[str, Any]:
    """A message as parts of text, each with what it is."""
    return {"role": entry.role, "position": entry.position, "parts": _parts(entry.body)}


def _parts(body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, heading, text) of each part. Its form is the models' own; what isn't known is shown whole."""
    if isinstance(body.get("text"), str):
        return [("text", "", shown(body["text"], _MOST_MESSAGE))]
    parts: list[tuple[str, str, str]] = []
    for block in cast("Sequence[Mapping[str, Any]]", body.get("blocks") or ()):
        match block.get("kind"):
            case "thinking":
                parts.append(("thinking", "reasoning", shown(block.get("text", ""), _MOST_MESSAGE)))
            case "tool_call":
                parts.append(("call", str(block.get("name")), _arguments(str(block.get("arguments", "")))))
            case _:
                parts.append(("text", "", shown(block.get("text", ""), _MOST_MESSAGE)))
    for result in cast("Sequence[Mapping[str, Any]]", body.get("results") or ()):
        heading = f"{result.get('name')}: {result.get('status')}"
        parts.append(("result", heading, shown(result.get("content", ""), _MOST_MESSAGE)))
    return parts or [("text", "", shown(json.dumps(body), _MOST_MESSAGE))]


def _arguments(text: str) -> str:
    """A call's arguments, one a line where they are an object."""
    try:
        value = json.loads(text)
    except ValueError:
        return shown(text, _MOST_MESSAGE)
    if not isinstance(value, dict):
        return shown(text, _MOST_MESSAGE)
    lines = (f"{name}: {one}" for name, one in cast("dict[str, Any]", value).items())
    return shown("\n".join(lines), _MOST_MESSAGE)


# ---- its patch, and its events


async def patch(view: View) -> Response:
    """The patch, whole, as a file."""
    stored = await view.get_run()
    artifact = await view.host.store.read_artifact(stored.view.id, "patch", tenant=view.tenant)
    if artifact is None:
        raise NotFound("the run has no patch", param="id")
    name = f'attachment; filename="{stored.view.id}.patch"'
    return Response(artifact.text, media_type="text/x-diff", headers={"Content-Disposition": name})


async def live(view: View) -> Response | AsgiApp:
    """The run's events from some number on."""
    stored = await view.get_run()
    after = view.request.headers.get("last-event-id") or view.request.query_params.get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) < 15):
        raise InvalidRequest("`after` is the number of an event", param="after")
    if stored.view.status.ended and int(after) >= stored.last_seq:
        return Response(status_code=204)  # nothing will come: a browser then stops asking
    events = view.host.feed.follow(stored.view.id, after=min(int(after), stored.last_seq), tenant=view.tenant)

    async def is_allowed() -> bool:
        return await view.visitors.still(view.identity)

    return view.doors.streams.new(events, is_allowed=is_allowed)
