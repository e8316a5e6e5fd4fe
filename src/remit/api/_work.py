"""Calls on what is running now."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import field_validator

from remit.api._operation import Answer, Call, Operation, Says, json_answer
from remit.api._ports import WorkRow
from remit.api._runs import get_run
from remit.api._shapes import WorkCancelled, WorkEntry, WorkNode, WorkPage, WorkTree
from remit.contract import Model
from remit.errors import InvalidRequest, NotFound
from remit.primitives import clean_text

_MOST = 128


class WorkQuery(Model):
    """Which part of it."""

    after: str | None = None
    """The work id that was seen last."""
    limit: int = _MOST
    """Clamped to 1..128."""
    tree: bool = False
    """All of it, nested."""

    @field_validator("after")
    @classmethod
    def _check_after(cls, value: str | None) -> str | None:
        if value is not None and (not value or len(value) > 512 or not value.isprintable()):
            raise ValueError("not a work id")
        return value


async def _run_work(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, WorkQuery), "as the table says"
    run = (await get_run(call)).view
    if query.tree:
        if query.after is not None:
            raise InvalidRequest("a tree has no pages", param="after")
        rows: list[WorkRow] = []
        after: str | None = None
        while True:
            page, after = call.host.work_page(run, tenant=call.tenant, after=after, limit=_MOST)
            rows += page
            if after is None:
                return json_answer(WorkTree(data=nest(rows)))
    limit = min(max(query.limit, 1), _MOST)
    page, after = call.host.work_page(run, tenant=call.tenant, after=query.after, limit=limit)
    return json_answer(WorkPage(data=tuple(map(_entry, page)), next_cursor=after))


async def _all_work(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, WorkQuery), "as the table says"
    rows = call.host.all_work(tenant=call.tenant)
    if query.tree:
        return json_answer(WorkTree(data=nest(rows)))
    limit = min(max(query.limit, 1), _MOST)
    beyond = [row for row in rows if query.after is None or row.work_id > query.after]
    page = beyond[:limit]
    more = len(beyond) > limit
    return json_answer(
        WorkPage(data=tuple(map(_entry, page)), next_cursor=page[-1].work_id if more else None)
    )


async def _cancel_work(call: Call) -> Answer:
    row = call.host.cancel_work(call.path["id"], tenant=call.tenant)
    if row is None:
        shown = clean_text(call.path["id"])[0][:128]
        raise NotFound(f"no work `{shown}` goes on", param="id")
    return json_answer(WorkCancelled(changed=not row.cancelling, work=_entry(row, cancelling=True)))


def _entry(row: WorkRow, *, cancelling: bool = False) -> WorkEntry:
    return WorkEntry(
        work_id=row.work_id,
        parent=row.parent,
        kind=row.kind,
        label=row.label,
        status="cancelling" if row.cancelling or cancelling else "running",
        stage=row.stage,
        elapsed_ms=row.elapsed_ms,
        cancellable=row.cancellable,
    )


def nest(rows: Sequence[WorkRow]) -> tuple[WorkNode, ...]:
    """Rows as a tree. Pure; what has no parent among them is a root."""
    known = {row.work_id for row in rows}
    below: dict[str | None, list[WorkRow]] = {}
    for row in rows:
        parent = row.parent if row.parent in known and row.parent != row.work_id else None
        below.setdefault(parent, []).append(row)
    placed: set[str] = set()

    def node(row: WorkRow) -> WorkNode:
        placed.add(row.work_id)
        children = tuple(node(child) for child in below.get(row.work_id, ()) if child.work_id not in placed)
        return WorkNode(**dict(_entry(row)), children=children)

    return tuple(node(row) for row in below.get(None, ()))


OPERATIONS = (
    Operation(
        id="read_run_work",
        method="GET",
        path="/api/v1/runs/{id}/work",
        summary="What of a run is going on now; `?tree=1` nested.",
        handle=_run_work,
        scope="read",
        names="run",
        query=WorkQuery,
        says={200: Says(text="Live work; with `tree` a WorkTree.", shape=WorkPage)},
    ),
    Operation(
        id="list_work",
        method="GET",
        path="/api/v1/work",
        summary="What of the tenant's runs is going on now.",
        handle=_all_work,
        scope="read",
        query=WorkQuery,
        says={200: Says(text="Live work; with `tree` a WorkTree.", shape=WorkPage)},
    ),
    Operation(
        id="cancel_work",
        method="POST",
        path="/api/v1/work/{id}/cancel",
        summary="Stop one piece of work: a tool call (that is its result), an attempt, a stage or a run.",
        handle=_cancel_work,
        scope="run",
        names="work",
        says={200: Says(text="It was asked to stop.", shape=WorkCancelled)},
    ),
)
