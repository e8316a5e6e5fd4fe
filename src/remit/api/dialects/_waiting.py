"""Waiting for a run's end on a connection that may be hung up, streamed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from remit.api._guard import Receive, Scope, Send
from remit.api.dialects._calls import DoorAnswer, DoorCall
from remit.api.dialects._dialect import refusal
from remit.api.dialects._faults import fault_of_run
from remit.api.dialects._starting import Attended
from remit.api.dialects._stream import RunStream, StreamSource, Teller, wait_gone
from remit.api.dialects._telling import tell
from remit.contract import RunView
from remit.errors import NotFound

_AS_LONG_AS_IT_TAKES_MS: Final = 10 * 366 * 24 * 3_600_000


async def read_run(call: DoorCall, run_id: str) -> RunView:
    """A run as it stands.

    Raises:
        NotFound: There is none.
    """
    stored = await call.host.store.find_run(run_id, tenant=call.tenant)
    if stored is None:
        raise NotFound("there is no such run", param="id")
    return stored.view


def answer_whole(
    call: DoorCall, attended: Attended, body: Callable[[RunView], Mapping[str, Any]]
) -> DoorAnswer:
    """Wait for the run, then answer with it whole; if the client hangs up before, the run is cancelled."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        call.foreground.enter(attended.run, tenant=call.tenant)
        answered = False
        try:
            answered = await _until_ended(call, attended.run.id, receive)
        finally:
            await _leave(call, attended)(answered)
        if answered:
            response = _whole(call, await read_run(call, attended.run.id), attended, body)
            await response(scope, receive, send)

    return answer


def _whole(
    call: DoorCall, run: RunView, attended: Attended, body: Callable[[RunView], Mapping[str, Any]]
) -> Response:
    if run.terminal is None or run.terminal.kind != "completed":
        return refusal(call.dialect, fault_of_run(run), request_id=call.request_id)
    response = call.answer(body(run))
    response.headers.update(attended.headers)
    return response


async def _until_ended(call: DoorCall, run_id: str, receive: Receive) -> bool:
    """Whether the run ended before the client hung up."""
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(
            call.host.wait_ended(run_id, tenant=call.tenant, wait_ms=_AS_LONG_AS_IT_TAKES_MS)
        )
        gone = group.create_task(wait_gone(receive))
        await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
        done = ended.done()
        ended.cancel()
        gone.cancel()
    return done


def answer_stream(
    call: DoorCall, attended: Attended, teller: Teller, *, live: bool, foreground: bool = True
) -> DoorAnswer:
    """Answer with the run as it goes on.

    Args:
        call: The call.
        attended: The run.
        teller: Writes it in the client's dialect.
        live: Whether a plain answer may be shown while it comes.
        foreground: Whether a hang-up cancels the run.

    Raises:
        QuotaExceeded: As many streams are open as may be.
    """
    call.doors.streams.check_room()
    run, binding = attended.run, attended.binding
    events = call.host.feed.follow(run.id, tenant=call.tenant)

    async def is_allowed() -> bool:
        return await call.doors.keyring.still(call.identity)

    async def read() -> RunView:
        return await read_run(call, run.id)

    source = StreamSource(
        told=tell(events, progress=binding.progress, live=live and run.profile == "answer"),
        teller=teller,
        read_run=read,
        is_allowed=is_allowed,
        left=_leave(call, attended) if foreground else _nobody_leaves,
        headers={**call.dialect.headers(request_id=call.request_id), **attended.headers},
    )
    if foreground:
        call.foreground.enter(run, tenant=call.tenant)
    return RunStream(call.doors.streams, source)


def _leave(call: DoorCall, attended: Attended) -> Callable[[bool], Awaitable[object]]:
    async def leave(answered: bool) -> None:
        await call.foreground.leave(
            attended.run, caller=call.identity.caller, ask=call.ask, answered=answered
        )

    return leave


async def _nobody_leaves(answered: bool) -> None:
    return
