"""Child runs: a tool call of a run that is a whole run of its own.

    delegate ─> limits left? ─> child stored ─> plan, work, review on a copy of the parent's checkout
             ─> passed? ─> its changes are put into the parent's checkout, as the call's one effect

The parent waits in that call, so a child needs no place of its own: it goes on in its parent's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pydantic import ValidationError

from remit.contract import (
    ChildResult,
    DeliveryRequest,
    LimitRequest,
    Limits,
    RunRequest,
    RunView,
    RunWorkspace,
    ToolRequest,
    ToolResponse,
    ToolStatus,
    WorkspaceRequest,
    say_fault,
)
from remit.errors import InternalError, RemitError
from remit.events import NewEvent
from remit.primitives import StrictJsonError, clean_text, dump_json, load_json
from remit.requests import fingerprint, narrow_limits
from remit.runs._context import RunContext
from remit.runs._control import CancelAsked, RunControl
from remit.runs._journal import RunJournal
from remit.runs._lineage import MAX_DEPTH, HeldPlace, Offspring, Parentage, Why, limits_left
from remit.runs._ports import Submission
from remit.runs._shield import despite_cancel
from remit.runs._work import RunWork, WorkItem
from remit.stages import ToolUse
from remit.usage import Budget
from remit.work import ObservedStage, Residencies

__all__ = ["Delegation"]

_MAX_PROMPT_CHARS: Final = 100_000
_PATHS_SHOWN: Final = 50
_STAGES: Final = ("plan", "work", "review")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a model asks for."""

    prompt: str
    limits: LimitRequest


class _Refused(Exception):
    """The child isn't started; the message is for the model."""

    def __init__(self, status: ToolStatus, message: str) -> None:
        super().__init__(message)
        self.status: ToolStatus = status
        self.message = message


class Delegation:
    """Starts the children of one run, one call at a time.

    Args:
        context: The parent's surroundings.
        journal: The parent's log.
        work: The parent's work items.
        budget: The parent's, from which children spend.
        offspring: The parent's, to which they count.
        drive: Takes a run to its end.
        apply: Puts a child's changes into the parent's checkout: does a tool call on the node.
        remaining_s: What the parent's stage and the parent have left.
    """

    def __init__(
        self,
        context: RunContext,
        journal: RunJournal,
        work: RunWork,
        *,
        budget: Budget,
        offspring: Offspring,
        drive: Callable[[RunContext], Awaitable[RunView]],
        apply: Callable[[ToolRequest, WorkItem], Awaitable[ToolResponse]],
        remaining_s: Callable[[], float | None],
    ) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._budget = budget
        self._offspring = offspring
        self._drive = drive
        self._apply = apply
        self._remaining_s = remaining_s

    @staticmethod
    def is_offered(context: RunContext) -> bool:
        """Whether work of this run may start children at all."""
        depth = context.parentage.depth if context.parentage is not None else 0
        view = context.stored.view
        in_place = view.workspace is not None and view.workspace.isolation == "in_place"
        pools = all(kind in context.pools for kind in _STAGES)
        return context.binding.delegate and depth < MAX_DEPTH and pools and not in_place

    async def call(self, use: ToolUse, *, max_shown_bytes: int) -> ToolResponse:
        """Do one `delegate` call; the parent's checkout is open.

        Raises:
            NodeError: The node is lost.
            RemitError: The child's end couldn't be stored.

        Cancellation: the child is cancelled, and has its terminal, before the cancel goes on.
        """
        began = self._context.clock.monotonic()
        try:
            order = _read(use.arguments)
            limits = self._limits_for(order)
        except _Refused as refused:
            return self._answer(use, refused.status, refused.message)
        control = RunControl(residencies=Residencies(parent=self._context.control.residencies))

        async def stop() -> None:
            item.see(ObservedStage.CLEANUP)
            self._ask(control, self._why_stopped())

        with self._work.tool(use, stop=stop) as item:
            item.see(ObservedStage.RECEIPT_WAIT)
            child, view = await self._to_the_end(order, limits, control, work_id=item.work_id)
            response = await self._outcome(use, child, view, item, max_shown_bytes=max_shown_bytes)
            item.see(ObservedStage.RETIREMENT)
            response = await self._warn(use, response)
        took_ms = int((self._context.clock.monotonic() - began) * 1000)
        return response.model_copy(update={"duration_ms": took_ms})

    async def _warn(self, use: ToolUse, response: ToolResponse) -> ToolResponse:
        """Tell the model, and the log, when most of the children that there may be were started."""
        warning = self._offspring.take_warning()
        if warning is None:
            return response
        payload = warning.model_copy(update={"stage_id": use.stage_id})
        stage_id = self._work.id_of(use.stage_id)
        await self._journal.append(NewEvent(type="limit.warning", payload=payload, work_id=stage_id))
        note = f"{warning.value} of {warning.cap} child runs were started (max_children)"
        return response.model_copy(update={"content": f"{response.content}\n[{note}]"})

    # ---- starting it

    def _limits_for(self, order: _Order) -> Limits:
        if self._offspring.left == 0:
            limit = self._journal.view.limits.max_children
            raise _Refused("denied", f"no more child runs may be started (max_children is {limit})")
        remaining_s = self._remaining_s()
        own = self._journal.view.limits
        left = limits_left(
            own,
            self._budget,
            children=self._offspring.left - 1,
            remaining_ms=own.wall_clock_ms if remaining_s is None else int(remaining_s * 1000),
        )
        if left is None:
            raise _Refused("denied", "nothing is left of this run's limits for a child run; do it here")
        return narrow_limits(left, order.limits)

    async def _start(
        self, request: RunRequest, limits: Limits, control: RunControl, *, work_id: str
    ) -> RunContext:
        """Store the child and claim it for this host."""
        context, stored = self._context, self._context.stored
        run_id = cast("str", request.id)
        parent = self._journal.view
        view = RunView(
            id=run_id,
            session_id=run_id,
            parent_run_id=parent.id,
            root_run_id=parent.root_run_id,
            binding=parent.binding,
            profile="reviewed",
            created_at=context.clock.now(),
            workspace=RunWorkspace(ref=parent.workspace.ref) if parent.workspace is not None else None,
            limits=limits,
        )
        submission = Submission(
            run=view,
            request=request,
            fingerprint=fingerprint(request),
            epoch=stored.epoch,
            tenant=stored.tenant,
            key_id=stored.key_id,
        )
        await context.store.submit(submission)
        self._offspring.add(run_id)
        claimed = await context.store.claim(stored.epoch, run_id=run_id, tenant=stored.tenant)
        if claimed is None:
            raise InternalError("a child run was taken up by somebody else", run_id=run_id)
        binding = context.binding.model_copy(update={"profile": "reviewed", "delivery": "patch"})
        depth = context.parentage.depth if context.parentage is not None else 0
        return replace(
            context,
            stored=claimed,
            binding=binding,
            control=control,
            place=HeldPlace(),
            parentage=Parentage(
                session_name=self._work.session_id,
                work_id=work_id,
                node_run_id=stored.outside_id,
                depth=depth + 1,
                budget=self._budget,
                offspring=self._offspring,
                why_stopped=self._why_stopped,
            ),
        )

    def _request(self, order: _Order) -> RunRequest:
        """What the child is asked: its own prompt; where, by whom and how carefully as its parent."""
        asked = self._context.stored.request
        view = self._journal.view
        subdir = asked.workspace.subdir if asked.workspace is not None else None
        ref = view.workspace.ref if view.workspace is not None else ""
        return RunRequest(
            id=self._context.ids.new("run"),
            binding=view.binding,
            prompt=order.prompt,
            instructions=asked.instructions,
            workspace=WorkspaceRequest(ref=ref, subdir=subdir),
            profile="reviewed",
            model=asked.model,
            stages=asked.stages,
            limits=order.limits,
            delivery=DeliveryRequest(mode="patch"),
            preserve=asked.preserve,
            usage=asked.usage,
        )

    # ---- while it goes on

    async def _to_the_end(
        self, order: _Order, limits: Limits, control: RunControl, *, work_id: str
    ) -> tuple[RunContext, RunView]:
        """Start the child and drive it. One piece: what is stored is driven, whoever gives up meanwhile."""
        request = self._request(order)
        told = self._work.child(cast("str", request.id), parent=work_id)

        async def start_and_drive() -> tuple[RunContext, RunView]:
            await self._journal.append(told.registered())  # whoever follows the parent finds the child by it
            told.how = "not_started"
            try:
                child = await self._start(request, limits, control, work_id=work_id)
                told.how = "abandoned"
                view = await self._watched(child)
                told.how = "closed"
                return child, view
            finally:
                self._journal.hold(told.finished())

        task = asyncio.get_running_loop().create_task(start_and_drive(), name=f"child of {work_id}")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._ask(control, self._why_cut_off())
            await despite_cancel(_ended(task))
            raise

    async def _watched(self, child: RunContext) -> RunView:
        """Drive it, so that who else waits for it is told also where its end can't be told."""
        view = child.stored.view
        try:
            with self._context.attach(child.stored.tenant, view.id, child.control):
                return await self._drive(child)
        except RemitError as error:
            child.control.fail(error)
            raise
        except Exception as error:
            child.control.fail(InternalError(f"{type(error).__name__}: {error}", run_id=view.id))
            raise

    def _ask(self, control: RunControl, why: Why) -> None:
        """Cancel the child."""
        clock = self._context.clock
        control.ask(CancelAsked(by=why.by, reason=why.reason, at=clock.now(), at_monotonic=clock.monotonic()))

    def _why_stopped(self) -> Why:
        """Why the call's work is being stopped: with its run, or somebody stopped it alone."""
        asked = self._context.control.asked
        if asked is None:
            return Why(by="operator", reason="the call that started it was stopped")
        return Why(by=asked.by, reason="the run that started it was stopped")

    def _why_cut_off(self) -> Why:
        """Why the wait for the child ended: with its run, or only the time of stage or run ran out."""
        if self._context.control.asked is None:
            return Why(by="deadline", reason="the time of the run that started it ran out")
        return self._why_stopped()

    # ---- what came of it

    async def _outcome(
        self, use: ToolUse, child: RunContext, view: RunView, item: WorkItem, *, max_shown_bytes: int
    ) -> ToolResponse:
        terminal = view.terminal
        if terminal is None:
            raise InternalError("a child run ended without a terminal", run_id=view.id)
        told: dict[str, Any] = {"run_id": view.id, "status": view.status.value}
        if terminal.kind != "completed":
            told |= {"class": terminal.class_, "code": terminal.code, "why": terminal.message}
            summary = view.review.summary if view.review is not None else None
            told |= {"review": summary} if summary else {}
            status: ToolStatus = "cancelled" if terminal.kind == "cancelled" else "failed"
            told["applied"] = []
            return self._answer(use, status, _render(told, max_shown_bytes))
        told["output"] = view.output
        content_hash = view.review.content_hash if view.review is not None else None
        if view.patch is None or not view.patch.files or content_hash is None:
            return self._answer(use, "success", _render({**told, "applied": []}, max_shown_bytes))
        result = ChildResult(run_id=child.stored.outside_id, content_hash=content_hash)
        response = await self._apply(self._tool_request(use, result), item)
        if response.status == "success":
            shown = [*response.changed[:_PATHS_SHOWN]]
            more = len(response.changed) - len(shown)
            told["applied"] = [*shown, f"and {more} more"] if more else shown
        else:
            told |= {"applied": [], "not_applied": response.content}
        return response.model_copy(update={"content": _render(told, max_shown_bytes)})

    def _tool_request(self, use: ToolUse, result: ChildResult) -> ToolRequest:
        limits, left = self._journal.view.limits, self._remaining_s()
        return ToolRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            stage_id=use.stage_id,
            tool_call_id=use.tool_call_id,
            name=use.name,
            arguments=use.arguments,
            timeout_ms=limits.tool_timeout_ms,
            remaining_ms=limits.wall_clock_ms if left is None else max(1, int(left * 1000)),
            child=result,
        )

    def _answer(self, use: ToolUse, status: ToolStatus, content: str) -> ToolResponse:
        """The answer of a call that changed nothing in the parent's checkout: no receipt is owed."""
        return ToolResponse(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            stage_id=use.stage_id,
            tool_call_id=use.tool_call_id,
            status=status,
            content=content,
            receipt_id="",
            effect="write",
        )


async def _ended(task: asyncio.Task[tuple[RunContext, RunView]]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen; the cancel goes on


def _read(arguments: str) -> _Order:
    """The checked arguments of a call.

    Raises:
        _Refused: With what is wrong.
    """
    try:
        value = load_json(arguments)
    except StrictJsonError as error:
        raise _Refused("invalid_arguments", f"the arguments aren't valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise _Refused("invalid_arguments", "the arguments must be one JSON object")
    given = cast("dict[str, Any]", value)
    unknown = [key for key in given if key not in ("prompt", "limits")]
    if unknown:
        raise _Refused(
            "invalid_arguments", f"unknown argument {unknown[0][:80]!r}; there are: prompt, limits"
        )
    prompt = given.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise _Refused("invalid_arguments", "`prompt` is missing; say what the child run is to do")
    if len(prompt) > _MAX_PROMPT_CHARS:
        raise _Refused("invalid_arguments", f"`prompt` has more than {_MAX_PROMPT_CHARS} characters")
    try:
        limits = LimitRequest.model_validate(given.get("limits") or {})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("limits", *first["loc"])))
        raise _Refused("invalid_arguments", f"`{where[:80]}`: {say_fault(first)}") from None
    return _Order(prompt=clean_text(prompt)[0], limits=limits)


def _render(told: dict[str, Any], max_bytes: int) -> str:
    """What the model is told, as one JSON object; its longest text is cut where it doesn't fit."""
    text = dump_json(told)
    for key in ("output", "review", "applied"):
        over = len(text.encode()) - max_bytes
        if over <= 0:
            break
        value = told.get(key)
        if isinstance(value, str):
            told[key] = value[: max(0, len(value) - over - 64)] + "…"
        elif value:
            told[key] = [f"{len(value)} paths"]
        text = dump_json(told)
    return text
