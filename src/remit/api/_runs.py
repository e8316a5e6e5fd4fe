"""Calls on runs: start, look, stop, answer."""

from __future__ import annotations

from pydantic import Field, field_validator
from starlette.responses import Response

from remit.api._operation import Answer, Call, NoQuery, Operation, Says, json_answer
from remit.api._ports import Cancelled
from remit.api._reading import as_object, checked, read_idempotency_key
from remit.api._shapes import (
    AcknowledgeBody,
    CancelAnswer,
    CancelBody,
    Changed,
    DeliverBody,
    Delivered,
    InputBody,
    RunEnd,
    RunPage,
)
from remit.contract import (
    CancelReceipt,
    DryRun,
    Model,
    Moment,
    RunRequest,
    RunStatus,
    RunView,
    Terminal,
)
from remit.errors import NotFound, PreconditionFailed
from remit.primitives import clean_text
from remit.requests import parse_request
from remit.runs import StoredRun, Tombstone, read_newest_view

MAX_WAIT_MS = 3_600_000
MAX_PAGE = 500
_STATUSES = tuple(status.value for status in RunStatus)


async def get_run(call: Call) -> StoredRun:
    """The run that the path names, if it is the caller's.

    Raises:
        NotFound: It isn't, or there is none: nobody learns which.
    """
    run_id = call.path["id"]
    stored = await call.host.store.find_run(run_id, tenant=call.tenant)
    if stored is None:
        raise unknown_run(run_id)
    return stored


def unknown_run(run_id: str) -> NotFound:
    """The answer for an id that names no run of the caller's."""
    return NotFound(f"no run `{clean_text(run_id)[0][:128]}`", param="id")


# ---- create


class CreateQuery(Model):
    """How long to wait for the end, and whether anything is to happen at all."""

    wait_ms: int = Field(default=0, ge=0, le=MAX_WAIT_MS)
    dry_run: bool = False


async def _create(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, CreateQuery), "as the table says"
    idempotency_key = read_idempotency_key(call.headers)
    parsed = parse_request(as_object(call.body))
    if query.dry_run:
        return json_answer(await call.host.dry_run(parsed, caller=call.caller))
    started = await call.host.start(parsed, caller=call.caller, idempotency_key=idempotency_key)
    view = started.run.view
    status = 201 if started.created else 200
    if query.wait_ms and not view.status.ended:
        await call.host.wait_ended(view.id, tenant=call.tenant, wait_ms=query.wait_ms)
        view = await _view_of(call, view.id)
        status = status if view.status.ended else 202
    view = call.host.placed(view, tenant=call.tenant)
    return json_answer(view, status, {"Location": f"/api/v1/runs/{view.id}", "X-Remit-Run-Id": view.id})


async def _view_of(call: Call, run_id: str) -> RunView:
    stored = await call.host.store.find_run(run_id, tenant=call.tenant)
    if stored is None:
        raise unknown_run(run_id)
    return stored.view


# ---- look


class ListQuery(Model):
    """Which runs."""

    status: str | None = None
    """One, or several with commas between."""
    session_id: str | None = None
    binding: str | None = None
    created_after: Moment | None = None
    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)

    @field_validator("status")
    @classmethod
    def _check_status(cls, value: str | None) -> str | None:
        for status in (value or "").split(",") if value is not None else ():
            if status not in _STATUSES:
                raise ValueError(f"a status is one of {', '.join(_STATUSES)}")
        return value


async def _list(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, ListQuery), "as the table says"
    runs, cursor = await call.host.store.list_runs(
        tenant=call.tenant,
        statuses=() if query.status is None else query.status.split(","),
        session_id=query.session_id,
        binding=query.binding,
        created_after=query.created_after,
        after=query.cursor,
        limit=query.limit,
    )
    views = [await _newest(call, run.view) for run in runs]
    return json_answer(RunPage(data=tuple(views), next_cursor=cursor))


async def _newest(call: Call, view: RunView) -> RunView:
    newest = await read_newest_view(call.host.store, view, tenant=call.tenant)
    return call.host.placed(newest, tenant=call.tenant)


async def _read(call: Call) -> Answer:
    return json_answer(await _newest(call, (await get_run(call)).view))


# ---- stop


class CancelQuery(Model):
    """How long to wait for the end."""

    wait_ms: int = Field(default=10_000, ge=0, le=MAX_WAIT_MS)


async def _cancel(call: Call) -> Answer:
    query, body = call.query, _body_of(call, CancelBody)
    assert isinstance(query, CancelQuery), "as the table says"
    run_id = call.path["id"]
    stored = await call.host.store.find_run(run_id, tenant=call.tenant)
    if stored is None and not body.tombstone:
        raise unknown_run(run_id)
    outcome = await call.host.cancel(
        run_id,
        caller=call.caller,
        reason=None if body.reason is None else clean_text(body.reason)[0],
        tombstone=body.tombstone,
        wait_ms=query.wait_ms,
    )
    ended = isinstance(outcome, Tombstone) or outcome.run.status.ended
    return json_answer(cancel_answer(outcome), 200 if ended else 202)


def cancel_answer(outcome: Cancelled | Tombstone) -> CancelAnswer:
    """What a cancel did, for its caller."""
    if isinstance(outcome, Tombstone):
        return _dead(outcome)
    receipt = outcome.run.cancel if outcome.run.status.ended else outcome.receipt
    return CancelAnswer(changed=outcome.changed, run=end_of(outcome.run), receipt=receipt)


def _dead(dead: Tombstone) -> CancelAnswer:
    """An id that no run has, and none ever will: as a run of it would have ended."""
    return CancelAnswer(
        changed=True,
        run=RunEnd(id=dead.run_id, status=RunStatus.CANCELLED, terminal=Terminal.of("cancelled", dead.by)),
        receipt=CancelReceipt(requested_at=dead.at, by=dead.by, reason=dead.reason, complete=True),
    )


def end_of(view: RunView) -> RunEnd:
    """How a run stands, in short."""
    return RunEnd(id=view.id, status=view.status, terminal=view.terminal)


def _body_of(call: Call, shape: type[CancelBody]) -> CancelBody:
    return checked(shape, {} if call.body is None else as_object(call.body), "a field of this call")


# ---- answer


async def _acknowledge(call: Call) -> Answer:
    body = checked(AcknowledgeBody, as_object(call.body), "a field of this call")
    stored = await get_run(call)
    changed = await call.host.acknowledge(stored.view.id, caller=call.caller, accepted=body.accepted)
    return json_answer(Changed(changed=changed, run=end_of(await _view_of(call, stored.view.id))))


async def _input(call: Call) -> Answer:
    body = checked(InputBody, as_object(call.body), "a field of this call")
    stored = await get_run(call)
    await call.host.tell(stored.view.id, tenant=call.tenant, text=body.text)
    return json_answer(Changed(changed=True, run=end_of(await _view_of(call, stored.view.id))))


async def _deliver(call: Call) -> Answer:
    body = checked(DeliverBody, {} if call.body is None else as_object(call.body), "a field of this call")
    stored = await get_run(call)
    delivery = await call.host.deliver(
        stored,
        caller=call.caller,
        unreviewed=body.unreviewed,
        allow_protected=body.allow_protected,
        branch=body.branch,
    )
    return json_answer(Delivered(run=end_of(await _view_of(call, stored.view.id)), delivery=delivery))


async def _discard(call: Call) -> Answer:
    stored = await get_run(call)
    delivery = await call.host.discard(stored, caller=call.caller)
    return json_answer(Delivered(run=end_of(await _view_of(call, stored.view.id)), delivery=delivery))


async def read_patch(call: Call) -> Answer:
    """The run's patch, as text."""
    stored = await get_run(call)
    artifact = await call.host.store.read_artifact(stored.view.id, "patch", tenant=call.tenant)
    if artifact is None:
        if not stored.view.status.ended:
            raise PreconditionFailed("the run has no patch yet: it goes on", param="id")
        raise NotFound("the run has no patch", param="id")
    return Response(artifact.text, media_type="text/x-diff", headers={"Content-Disposition": "attachment"})


OPERATIONS = (
    Operation(
        id="create_run",
        method="POST",
        path="/api/v1/runs",
        summary="Start a run; the same request again, by key or id, gives the run that is there.",
        handle=_create,
        scope="run",
        query=CreateQuery,
        body=RunRequest,
        headers={"Idempotency-Key": "Stands for this request: 1 to 255 visible ASCII characters."},
        says={
            200: Says(text="The run that the same request had started (or, with `dry_run`, what would be).",
                      shape=RunView, other=DryRun),
            201: Says(text="The run, started.", shape=RunView),
            202: Says(text="The run, which hadn't ended when `wait_ms` ran out.", shape=RunView),
        },
        errors=("idempotency_conflict", "price_unknown", "cap_spent", "session_busy", "queue_full",
                "quota_exceeded", "draining", "precondition_failed", "config"),
    ),
    Operation(
        id="list_runs",
        method="GET",
        path="/api/v1/runs",
        summary="The runs of the key's tenant, newest first.",
        handle=_list,
        scope="read",
        query=ListQuery,
        says={200: Says(text="A page.", shape=RunPage)},
    ),
    Operation(
        id="read_run",
        method="GET",
        path="/api/v1/runs/{id}",
        summary="A run as it stands now.",
        handle=_read,
        scope="read",
        names="run",
        says={200: Says(text="The run.", shape=RunView)},
    ),
    Operation(
        id="cancel_run",
        method="POST",
        path="/api/v1/runs/{id}/cancel",
        summary="Stop a run and everything that it started.",
        handle=_cancel,
        scope="run",
        names="run",
        query=CancelQuery,
        body=CancelBody,
        body_required=False,
        says={
            200: Says(text="It has ended; the receipt names what was stopped, how and how fast.",
                      shape=CancelAnswer),
            202: Says(text="It is being stopped; the wait ran out.", shape=CancelAnswer),
        },
    ),
    Operation(
        id="acknowledge_run",
        method="POST",
        path="/api/v1/runs/{id}/acknowledge",
        summary="Accept or refuse the result of a run that waits for it.",
        handle=_acknowledge,
        scope="run",
        names="run",
        body=AcknowledgeBody,
        says={200: Says(text="Whether it was waiting.", shape=Changed)},
    ),
    Operation(
        id="input_run",
        method="POST",
        path="/api/v1/runs/{id}/input",
        summary="Add something while a run goes on: the model reads it before its next round.",
        handle=_input,
        scope="run",
        names="run",
        body=InputBody,
        says={200: Says(text="It waits to be read.", shape=Changed)},
        errors=("precondition_failed", "quota_exceeded"),
    ),
    Operation(
        id="deliver_run",
        method="POST",
        path="/api/v1/runs/{id}/deliver",
        summary="Approve a waiting delivery, or deliver the patch of an ended run, all or nothing.",
        handle=_deliver,
        scope="run",
        names="run",
        body=DeliverBody,
        body_required=False,
        says={200: Says(text="What became of it: `delivered`, or `conflict` and nothing applied.",
                        shape=Delivered)},
        errors=("precondition_failed", "node"),
    ),
    Operation(
        id="discard_run",
        method="POST",
        path="/api/v1/runs/{id}/discard",
        summary="Let the patch of a waiting or ended run never be applied.",
        handle=_discard,
        scope="run",
        names="run",
        says={200: Says(text="It won't be.", shape=Delivered)},
        errors=("precondition_failed",),
    ),
    Operation(
        id="read_patch",
        method="GET",
        path="/api/v1/runs/{id}/patch",
        summary="The run's patch.",
        handle=read_patch,
        scope="read",
        names="run",
        query=NoQuery,
        says={200: Says(text="A unified diff, with git's extended headers.", media_type="text/x-diff")},
        errors=("precondition_failed",),
    ),
)  # fmt: skip
