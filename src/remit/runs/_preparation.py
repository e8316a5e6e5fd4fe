"""What happens before the clock starts: providers loaded, base pinned, brief made.

The run is `queued` meanwhile. Nothing here opens a checkout, owes a clean-up, or asks a model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from remit.contract import (
    AbandonedWork,
    CancelRequest,
    Prepared,
    PrepareRequest,
    RunPrepared,
    RunWorkspace,
    StoppedCall,
    Terminal,
    WorkKind,
)
from remit.errors import NodeError, OwnershipError, RemitError
from remit.models import ModelPool
from remit.nodes import NodeLink
from remit.runs._context import RunContext, RunTimes
from remit.runs._deadlines import queue_terminal
from remit.runs._endings import Ended
from remit.runs._expiring import until
from remit.runs._finalizing import branch_of
from remit.runs._journal import RunJournal
from remit.runs._shield import despite_cancel
from remit.runs._work import RunWork, WorkItem
from remit.work import ObservedStage

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


async def prepare_run(context: RunContext, journal: RunJournal, work: RunWork) -> Prepared | None:
    """Make everything ready; None for a run without workspace.

    Raises:
        Ended: It couldn't be made ready (`failed/workspace`), or the queue's time ran out.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for pool in _distinct(context):
                group.create_task(pool.prepare())
            node = group.create_task(_prepare_node(context, journal, work))
    except ExceptionGroup as errors:  # what `except*` raises stays in a group, before Python 3.11.4
        raise _end_of(errors, journal) from None
    return node.result()


def _end_of(errors: ExceptionGroup[Exception], journal: RunJournal) -> BaseException:
    """What the run ends with: a lost ownership before all, then what the node says."""
    for kind in (OwnershipError, NodeError, (RemitError, ImportError)):
        found = errors.subgroup(kind)
        if found is None:
            continue
        said = _leaf(found)
        if kind is OwnershipError:
            return said
        _tell_why(journal, found.exceptions[0])
        return Ended(Terminal.of("workspace", _reason(said)), detail=str(said))
    return errors


def as_prepared(context: RunContext, journal: RunJournal, prepared: Prepared | None) -> RunPrepared | None:
    """What the run's record tells of its preparation; None: it has no workspace."""
    workspace = journal.view.workspace
    if prepared is None or workspace is None or context.link is None:
        return None
    return RunPrepared(
        workspace=RunWorkspace(
            ref=workspace.ref,
            node_id=context.link.node_id,
            base=prepared.base,
            isolation=prepared.isolation,
            sandbox=prepared.sandbox,
        ),
        brief_sha256=prepared.brief_sha256,
        notes=prepared.notes,
        checks=prepared.checks,
    )


async def within_queue_time(
    work: Coroutine[Any, Any, _Value], context: RunContext, journal: RunJournal
) -> _Value:
    """Do the work within what `max_queue_ms` leaves.

    Raises:
        Ended: `failed/budget`, code `queue`.
    """
    limit_ms = journal.view.limits.max_queue_ms
    if limit_ms is None:
        return await work
    waited_s = (context.clock.now() - journal.view.created_at).total_seconds()
    ends = asyncio.get_running_loop().time() + limit_ms / 1000 - waited_s
    async with until(ends, queue_terminal(limit_ms)):
        return await work


def _distinct(context: RunContext) -> list[ModelPool]:
    return list({id(pool): pool for pool in context.pools.values()}.values())


def _tell_why(journal: RunJournal, error: BaseException) -> None:
    """A terminal's sentence is fixed; what is wrong with this very workspace goes into the log."""
    _log.warning("run %s: the workspace can't be made ready: %s", journal.view.id, _leaf(error))


def _reason(error: BaseException) -> str:
    leaf = _leaf(error)
    return leaf.reason if isinstance(leaf, NodeError) else "unavailable"


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType] - groups of any errors
    return error  # pyright: ignore[reportUnknownVariableType] - groups of any errors


async def _prepare_node(context: RunContext, journal: RunJournal, work: RunWork) -> Prepared | None:
    view = journal.view
    if context.link is None or view.workspace is None:
        return None
    asked = context.stored.request.workspace
    request = PrepareRequest(
        run_id=context.stored.outside_id,
        generation=context.stored.generation,
        workspace_ref=view.workspace.ref,
        base=asked.base if asked else None,
        subdir=(asked.subdir if asked else None) or "",
        isolation="in_place" if context.stored.request.in_place else None,
        continues=context.stored.outside_continues,
        parent=parent.node_run_id if (parent := context.parentage) is not None else None,
        branch=branch_of(context, view),
    )
    with work.item(WorkKind.NODE_CALL, "prepare", name="prepare") as item:
        try:
            return await context.link.prepare(request)
        except asyncio.CancelledError:
            # The node goes on with what it was asked until it is told to stop: it may be running checks.
            item.see(ObservedStage.CLEANUP)
            await despite_cancel(_see_stopped(context, request, item))
            raise


async def _see_stopped(context: RunContext, request: PrepareRequest, item: WorkItem) -> None:
    """Stop the preparation, and say how it ended: here, since whoever waits may be cancelled once more."""
    link = context.link
    assert link is not None, "somebody prepared"
    try:
        stopped = await _stop(link, request, context.times)
        item.how, item.pids = stopped.how, stopped.pids
    except (NodeError, TimeoutError) as error:
        item.how = "abandoned"
        context.control.unended.append(_unended(item, error))


def _unended(item: WorkItem, error: NodeError | TimeoutError) -> AbandonedWork:
    said = error.message if isinstance(error, NodeError) else "the node didn't answer in time"
    return AbandonedWork(work_id=item.work_id, kind=item.kind.value, label=f"prepare: {said}")


async def _stop(link: NodeLink, request: PrepareRequest, times: RunTimes) -> StoppedCall:
    """End the preparation on the node; answers when its processes are gone.

    Raises:
        NodeError: The node couldn't end it.
        TimeoutError: It doesn't answer.
    """
    asked = CancelRequest(
        run_id=request.run_id, generation=request.generation, grace_ms=times.cancel_grace_ms
    )
    async with asyncio.timeout(times.stop_within_s):
        answer = await link.cancel(asked)
    if not answer.complete:
        raise NodeError("the node couldn't end the run's preparation", reason="unavailable")
    ended = StoppedCall(stage_id="", tool_call_id="", label="prepare", how="already_ended", ms=0)
    return next((item for item in answer.items if item.label == "prepare"), ended)
