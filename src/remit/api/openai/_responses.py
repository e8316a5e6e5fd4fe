"""Responses: answered at once, as a stream, or in the background and looked up later."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import (
    Attended,
    DoorAnswer,
    DoorCall,
    DoorOperation,
    Wish,
    answer_stream,
    answer_whole,
    door_facts,
    former_binding,
    start_run,
)
from remit.api.openai._responses_events import ResponsesTeller
from remit.api.openai._responses_object import response_object, run_id_of
from remit.api.openai._responses_request import ResponseRequest, read_response_request
from remit.contract import RunView
from remit.errors import InvalidRequest, NotFound

_STOPPED_WITHIN_MS: Final = 10_000
_ANY: Final = frozenset({"run", "read"})
_MOST_DIGITS: Final = 12


async def _create(call: DoorCall) -> DoorAnswer:
    request = read_response_request(call.fields)
    if request.stream:
        call.doors.streams.check_room()
    attended = await start_run(call, await _wish(call, request))
    if request.stream:
        numbered_alike = request.background or attended.binding.on_disconnect == "continue"
        teller = ResponsesTeller(attended.run, numbered_alike=numbered_alike)
        return answer_stream(
            call, attended, teller, live=not numbered_alike, foreground=not request.background
        )
    if request.background:
        return call.answer(response_object(attended.run), run_id=attended.run.id)
    return answer_whole(call, attended, response_object)


async def _wish(call: DoorCall, request: ResponseRequest) -> Wish:
    facts: dict[str, Any] = {"door": "openai-responses", "store": request.store}
    session = request.session_id
    if request.previous_response_id is not None:
        facts["previous_response_id"] = request.previous_response_id
        before = await _find(call, request.previous_response_id)
        if before is None:
            raise InvalidRequest(
                "there is no such response: `previous_response_id` names one that was stored",
                param="previous_response_id",
            )
        session = before.session_id
    if request.background:
        facts["background"] = True
    if request.user is not None:
        facts["user"] = request.user
    return Wish(
        model=request.model,
        fields=request.fields,
        brings_tools=request.brings_tools,
        metadata=request.metadata,
        facts=facts,
        session_id=session,
        background=request.background,
    )


async def _find(call: DoorCall, response: str) -> RunView | None:
    """The run of a response that was to be kept."""
    stored = await call.host.store.find_run(run_id_of(response), tenant=call.tenant)
    if stored is None or door_facts(stored.view).get("store") is False:
        return None
    return stored.view


async def _get(call: DoorCall) -> RunView:
    run = await _find(call, call.path["id"])
    if run is None:
        raise NotFound("there is no such response, or it wasn't stored", param="response_id")
    return run


async def _read(call: DoorCall) -> DoorAnswer:
    run = await _get(call)
    if call.query.get("stream", "false").lower() not in ("true", "1"):
        return call.answer(response_object(run), run_id=run.id)
    call.doors.streams.check_room()
    binding = call.host.bindings.get(run.binding) or former_binding(run)
    teller = ResponsesTeller(run, numbered_alike=True, after=_after(call))
    attended = Attended(run=run, binding=binding, joined=False)
    return answer_stream(call, attended, teller, live=False, foreground=False)


def _after(call: DoorCall) -> int | None:
    value = call.query.get("starting_after")
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        raise InvalidRequest("`starting_after` is the number of an event", param="starting_after")
    return int(value)


async def _cancel(call: DoorCall) -> DoorAnswer:
    run = await _get(call)
    await call.host.cancel(
        run.id,
        caller=call.identity.caller,
        reason="the response was cancelled",
        tombstone=False,
        wait_ms=_STOPPED_WITHIN_MS,
    )
    return call.answer(response_object(await _get(call)), run_id=run.id)


OPERATIONS: Final = (
    DoorOperation(id="create_response", method="POST", path="/v1/responses", handle=_create),
    DoorOperation(id="read_response", method="GET", path="/v1/responses/{id}", handle=_read, scopes=_ANY),
    DoorOperation(id="cancel_response", method="POST", path="/v1/responses/{id}/cancel", handle=_cancel),
)
