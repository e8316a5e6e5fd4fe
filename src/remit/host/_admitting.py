"""How every door's request becomes a run: by two of the five operations."""

from __future__ import annotations

from remit.errors import RequestError
from remit.host._parts import Parts
from remit.requests import ParsedRequest
from remit.runs import (
    OperationContext,
    SessionCreate,
    TurnBlocked,
    TurnStart,
    TurnStarted,
    snapshot_of,
    split_request,
)


async def admit(
    parts: Parts,
    parsed: ParsedRequest,
    *,
    run_id: str,
    context: OperationContext,
    idempotency_key: str | None,
) -> TurnStarted:
    """Create the session and start the turn; a repetition gets what the first one became.

    Raises:
        RequestError: It must be changed, and wasn't admitted before.
        AdmissionError: Not now.
        StorageError: It couldn't be stored.

    Cancellation: the run is stored and goes on, or it was never admitted.
    """
    session, turn = split_request(parsed.request)
    create = SessionCreate(session_id=None, turn_id=run_id, session=session, turn=turn)
    try:
        created = (await parts.dispatcher.create_session(create, context)).get()
    except RequestError:
        repeated = await parts.starter.find_repeated(parsed.request, context.caller, idempotency_key)
        if repeated is None:
            raise
        return TurnStarted(turn=snapshot_of(repeated.view), joined=True)
    start = TurnStart(
        session=created.session,
        turn_id=run_id,
        turn=turn,
        idempotency_key=idempotency_key,
        text_replaced=parsed.text_replaced,
    )
    started = (await parts.dispatcher.start_turn(start, context)).get()
    if isinstance(started, TurnBlocked):
        raise started.error.to_error()
    return started
