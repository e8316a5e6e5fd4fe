"""The five operations of hosted execution within the host's process: what every door goes through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from remit.admission import Deferred
from remit.contract import RunStatus, RunView
from remit.errors import (
    InternalError,
    InvalidRequest,
    NotFound,
    OwnershipError,
    PreconditionFailed,
    RemitError,
    RequestError,
    StorageError,
)
from remit.primitives import Clock
from remit.requests import ParsedRequest, parse_request
from remit.runs._control import RunControl
from remit.runs._naming import no_run
from remit.runs._operations import (
    Answer,
    Done,
    OperationContext,
    Refused,
    Session,
    SessionCreate,
    SessionCreated,
    SessionSpec,
    TurnBlocked,
    TurnQuery,
    TurnSnapshot,
    TurnSpec,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageQuery,
    UsageSummarised,
)
from remit.runs._ports import RunStore, StoredRun
from remit.runs._specs import join_request
from remit.runs._starting import RunDriver, Starter
from remit.runs._tombstones import Tombstone
from remit.runs._usage_answer import answer_usage, unreadable_usage

_log = logging.getLogger(__name__)
_Request = TypeVar("_Request")
_Result = TypeVar("_Result")
_TAKEN_UP_WITHIN_S: Final = 5.0

DECLARED: Final[dict[str, tuple[type[RemitError], ...]]] = {
    "session.create": (RequestError, OwnershipError, StorageError),
    "turn.start": (RequestError, OwnershipError, StorageError),
    "turn.query": (NotFound, OwnershipError, StorageError),
    "turn.stop": (RequestError, OwnershipError, StorageError),
    "usage.query": (NotFound, OwnershipError, StorageError),
}
"""Operation -> the errors that it answers with. Any other is a fault of ours: `InternalError`, no text."""


class Dispatcher:
    """Implements `HostedOperations` over a store, a starter and a driver.

    Args:
        store: Where runs are kept.
        starter: Decides on requests, stores and starts runs.
        driver: Who drives runs in this process.
        epoch: This start of the host; a context of another one is refused.
        clock: Where time comes from.
        find_workspace: The ref of the workspace that has this root on its node; None: none has. The root is
            compared as it is written: it is a path of the node's.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        starter: Starter,
        driver: RunDriver,
        epoch: str,
        clock: Clock,
        find_workspace: Callable[[str], str | None],
    ) -> None:
        self._store = store
        self._starter = starter
        self._driver = driver
        self._epoch = epoch
        self._clock = clock
        self._find_workspace = find_workspace

    # ---- the operations

    async def create_session(
        self, request: SessionCreate, context: OperationContext
    ) -> Answer[SessionCreated]:
        """`session.create`: everything that can be checked is; nothing is stored. See `HostedOperations`."""
        return await self._answer("session.create", self._create, request, context)

    async def start_turn(
        self, request: TurnStart, context: OperationContext
    ) -> Answer[TurnStarted | TurnBlocked]:
        """`turn.start`. See `HostedOperations`."""
        return await self._answer("turn.start", self._start, request, context)

    async def query_turn(self, request: TurnQuery, context: OperationContext) -> Answer[TurnSnapshot]:
        """`turn.query`. See `HostedOperations`."""
        return await self._answer("turn.query", self._query, request, context)

    async def stop_turn(self, request: TurnStop, context: OperationContext) -> Answer[TurnSnapshot]:
        """`turn.stop`: both halves of it; `ask_to_stop` is the first one alone. See `HostedOperations`."""
        return await self._answer("turn.stop", self._stop, request, context)

    async def query_usage(self, request: UsageQuery, context: OperationContext) -> Answer[UsageSummarised]:
        """`usage.query`. See `HostedOperations`."""
        return await self._answer("usage.query", self._usage, request, context)

    def ask_to_stop(self, request: TurnStop, context: OperationContext) -> bool:
        """The first half of a stop: asks, and waits for nothing. False: it changes nothing."""
        return self._starter.ask_to_stop(
            request.turn_id, by=request.by, reason=request.reason, tenant=context.caller.tenant
        )

    async def _answer(
        self,
        name: str,
        operation: Callable[[_Request, OperationContext], Awaitable[_Result]],
        request: _Request,
        context: OperationContext,
    ) -> Answer[_Result]:
        try:
            if context.host_epoch != self._epoch:
                raise OwnershipError("the context belongs to another start of the host")
            return Done(await operation(request, context))
        except DECLARED[name] as error:
            return Refused.of(error)
        except Exception as error:  # noqa: BLE001 - what isn't declared is a fault of ours, without its text
            _log.exception("%s failed", name)
            return Refused.of(InternalError(f"{name} failed: {type(error).__name__}"))

    # ---- session.create

    async def _create(self, request: SessionCreate, context: OperationContext) -> SessionCreated:
        parsed = self._parse(request.session, request.turn, request.turn_id)
        run = (await self._starter.consider(parsed, caller=context.caller)).run
        if request.session_id not in (None, run.session_id):
            raise InvalidRequest(
                f"the request leads to session `{run.session_id}`, not `{request.session_id}`",
                param="session_id",
            )
        session = Session(
            session_id=run.session_id,
            spec=request.session,
            binding=run.binding,
            profile=run.profile,
            workspace=run.workspace.ref if run.workspace is not None else None,
            created=run.session_id == run.id,
        )
        return SessionCreated(session=session)

    def _parse(self, session: SessionSpec, turn: TurnSpec, turn_id: str) -> ParsedRequest:
        if turn.id not in (None, turn_id):
            raise InvalidRequest(f"turn `{turn_id}` isn't `{turn.id}`", param="id")
        body = join_request(session, turn, find_workspace=self._find_workspace)
        return parse_request({**body, "id": turn_id})

    # ---- turn.start

    async def _start(self, request: TurnStart, context: OperationContext) -> TurnStarted | TurnBlocked:
        parsed = self._parse(request.session.spec, request.turn, request.turn_id)
        with context.acquire_residency("start"):
            started = await self._starter.start(
                replace(parsed, text_replaced=parsed.text_replaced + request.text_replaced),
                caller=context.caller,
                idempotency_key=request.idempotency_key,
                residencies=context.residencies,
            )
        if isinstance(started, Deferred):
            return TurnBlocked.of(started.error)
        return TurnStarted(turn=snapshot_of(started.run.view), joined=not started.created)

    # ---- turn.query

    async def _query(self, request: TurnQuery, context: OperationContext) -> TurnSnapshot:
        stored = await self._get(request.turn_id, context)
        control = self._find_control(request.turn_id, context)
        if request.wait_ms and control is not None and not stored.view.status.ended:
            await _wait_at_most(control.durable, request.wait_ms / 1000)
            stored = await self._get(request.turn_id, context)
        return snapshot_of(stored.view)

    def _find_control(self, run_id: str, context: OperationContext) -> RunControl | None:
        return self._driver.find_control(run_id, tenant=context.caller.tenant)

    async def _get(self, run_id: str, context: OperationContext) -> StoredRun:
        stored = await self._store.find_run(run_id, tenant=context.caller.tenant)
        if stored is None:
            raise no_run(run_id)
        return stored

    # ---- turn.stop

    async def _stop(self, request: TurnStop, context: OperationContext) -> TurnSnapshot:
        """Ask, and wait; whoever comes while a stop is on its way waits for the same end."""
        control = self._find_control(request.turn_id, context)
        if control is None:
            stored = await self._store.find_run(request.turn_id, tenant=context.caller.tenant)
            if stored is None:
                return await self._stop_unknown(request, context)
            if stored.view.status.ended:
                return snapshot_of(stored.view)
            control = await self._wait_taken_up(stored)
        self.ask_to_stop(request, context)
        return snapshot_of(await control.wait())

    async def _stop_unknown(self, request: TurnStop, context: OperationContext) -> TurnSnapshot:
        if not request.tombstone:
            raise no_run(request.turn_id)
        tombstone = await self._store.bury(
            request.turn_id, by=request.by, reason=request.reason, tenant=context.caller.tenant
        )
        if tombstone is None:  # it was started meanwhile
            return await self._stop(request, context)
        return _snapshot_of_dead(tombstone)

    async def _wait_taken_up(self, stored: StoredRun) -> RunControl:
        """The control of an unfinished run that nobody drives here yet: it was stored this very moment.

        Raises:
            PreconditionFailed: Another process has it.
        """
        if stored.epoch == self._epoch:
            ends = self._clock.monotonic() + _TAKEN_UP_WITHIN_S
            while self._clock.monotonic() < ends:
                control = self._driver.find_control(stored.view.id, tenant=stored.tenant)
                if control is not None:
                    return control
                await asyncio.sleep(0.001)
        raise PreconditionFailed(
            f"run `{stored.view.id}` isn't driven by this host: stop it where it is", run_id=stored.view.id
        )

    # ---- usage.query

    async def _usage(self, request: UsageQuery, context: OperationContext) -> UsageSummarised:
        """Of run and attempt: which moments somebody asked about selects nothing."""
        view = (await self._get(request.turn_id, context)).view
        try:
            attempts = await self._store.read_attempts(request.turn_id, tenant=context.caller.tenant)
        except StorageError:
            _log.warning("run %s: its ledger can't be read", request.turn_id, exc_info=True)
            return unreadable_usage(request.range)
        return answer_usage(attempts, request.range, usage=view.usage, cost_usd=view.cost_usd)


def snapshot_of(view: RunView) -> TurnSnapshot:
    """How a run stands, as a turn."""
    terminal = view.terminal
    told = terminal is not None and terminal.kind in ("failed", "indeterminate")
    return TurnSnapshot(
        session_id=view.session_id,
        turn_id=view.id,
        run_id=view.id,
        status=view.status,
        step_cap=view.limits.max_tool_rounds,
        started_at=view.started_at,
        completed_at=view.ended_at if view.status.ended else None,
        failure_class=f"{terminal.class_}/{terminal.code}" if terminal is not None and told else None,
    )


def _snapshot_of_dead(tombstone: Tombstone) -> TurnSnapshot:
    return TurnSnapshot(
        session_id=tombstone.run_id,
        turn_id=tombstone.run_id,
        run_id=tombstone.run_id,
        status=RunStatus.CANCELLED,
        step_cap=None,
        started_at=None,
        completed_at=tombstone.at,
    )


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
