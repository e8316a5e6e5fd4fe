"""The stages of a run, one after the other, to its decision.

    prepare ─> plan ─> work-1 ─> review-1 ──pass──> finalize ─> deliver ─> completed
                         ^          │ revise           │ a check is worse
                         └──────────┴──────────────────┘   (each counts against max_revisions)

Profile `direct` has neither plan nor review; `answer` is one plain request, without a workspace. A run
without workspace ends with its last stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from remit.contract import (
    LimitHit,
    PlanReady,
    Prepared,
    QueueTimes,
    Review,
    ReviewDecided,
    RunStarted,
    Snapshot,
    StageFailed,
    StageKind,
    StageStarted,
    Terminal,
    ToolSpec,
    WorkKind,
)
from remit.errors import InternalError, OwnershipError
from remit.events import Artifact, NewEvent
from remit.results import patch_artifact, repaired_paths, summarise_snapshot
from remit.runs._context import RunContext
from remit.runs._control import CancelAsked
from remit.runs._deadlines import StageClock, stage_clock, wall_clock_terminal
from remit.runs._endings import Decision, Ended, SentBack, classify_error
from remit.runs._expiring import until
from remit.runs._finalizing import BrokenChecks, Finalizer, VoidPass
from remit.runs._journal import RunJournal
from remit.runs._preparation import as_prepared
from remit.runs._shield import despite_cancel
from remit.runs._states import Trigger, next_status
from remit.runs._tools import RunTools
from remit.runs._work import RunWork
from remit.stages import (
    PROMPTS_VERSION,
    CommandRecord,
    Partial,
    StageAnswer,
    StageInput,
    StageRunner,
    text_sha256,
)
from remit.usage import Budget, WorkingTime
from remit.workspaces import DELEGATE

_TRIGGERS: dict[StageKind, Trigger] = {
    "plan": Trigger.PLAN,
    "work": Trigger.WORK,
    "review": Trigger.REVIEW,
}


class Pipeline:
    """One run's way through its stages."""

    def __init__(
        self,
        context: RunContext,
        journal: RunJournal,
        work: RunWork,
        *,
        tools: RunTools | None,
        prepared: Prepared | None,
        budget: Budget,
        session_context: str | None = None,
        queue: QueueTimes | None = None,
    ) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._tools = tools
        self._prepared = prepared
        self._budget = budget
        self._session_context = session_context
        self._queue = queue
        self._working = WorkingTime(clock=context.clock)
        self._wall_ends = 0.0
        self._plan: StageAnswer | None = None
        self._commands: list[CommandRecord] = []
        self._revisions = 0
        self._reviews = 0
        self.stage_id: str | None = None
        """The stage that is running, or ran last."""
        self.running_stage: str | None = None
        """The stage whose end isn't in the log yet."""
        self.partial = Partial()
        """What that stage had so far."""

    @property
    def _limits(self) -> Any:
        return self._journal.view.limits

    async def run(self) -> Decision:
        """All stages, gate and delivery.

        Raises:
            Ended: It came to an end that isn't `completed`. Errors from below go through as they are.

        Cancellation: what ran is stopped; from the commit on nothing is.
        """
        limit_ms = self._limits.working_limit_ms
        if limit_ms is None:
            return await self._run_stages()
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch_working_time(limit_ms), name="working time")
            decision = await self._run_stages()
            watcher.cancel()
        return decision

    async def _watch_working_time(self, limit_ms: int) -> None:
        await self._working.wait_until_worked(limit_ms)
        if not self._context.control.committed:
            hit = LimitHit(kind="working_limit_ms", value=self._working.working_ms(), cap=limit_ms)
            raise Ended(Terminal.of("budget", "working_time", stage=self.stage_id, limit=hit))

    async def _run_stages(self) -> Decision:
        if self._journal.view.profile == "answer":
            answer = await self._stage("work", "work-1")
            return await self._finalize(output=answer.fields["completion"], content_hash=None)
        if self._journal.view.profile == "reviewed":
            self._plan = await self._stage("plan", "plan")
            await self._keep_plan(self._plan)
        elif self._tools is not None:
            self._start_clock_early()
            async with self._in_time():
                await self._tools.ensure_open()
        feedback: str | None = None
        number = 0
        while True:
            number += 1
            work = await self._stage("work", f"work-{number}", feedback=feedback)
            try:
                return await self._judge(work)
            except BrokenChecks as broken:
                feedback = self._revise(broken.feedback, "checks_failed")
            except SentBack as back:
                feedback = self._revise(back.summary, "revisions_exhausted")

    def _revise(self, feedback: str, code: str) -> str:
        """One more try at the work, if there is one left."""
        if self._revisions >= self._limits.max_revisions:
            raise Ended(Terminal.of("rejected", code, stage=self.stage_id))
        self._revisions += 1
        return feedback

    # ---- judging a piece of work

    async def _judge(self, work: StageAnswer) -> Decision:
        if self._journal.view.profile != "reviewed":
            return await self._finalize(output=work.fields["completion"], content_hash=None)
        voids = 0
        while True:
            self._reviews += 1
            stage_id = f"review-{self._reviews}"
            answer, content_hash = await self._review(stage_id, work)
            try:
                return await self._finalize(output=answer.fields["output"], content_hash=content_hash)
            except VoidPass:
                voids += 1
                if voids > self._limits.max_corrections:
                    raise Ended(Terminal.of("invalid_output", "review", stage=stage_id)) from None

    async def _review(self, stage_id: str, work: StageAnswer) -> tuple[StageAnswer, str | None]:
        before = await self._snapshot()
        answer = await self._stage(
            "review",
            stage_id,
            completion=work.fields["completion"],
            patch=before.patch if before else None,
        )
        after = await self._snapshot()
        await self._record_review(stage_id, answer, after, repairs=repaired_paths(before, after))
        match answer.fields["decision"]:
            case "pass":
                return answer, after.content_hash if after else None
            case "revise":
                raise SentBack(answer.fields["summary"])
            case _:
                raise Ended(Terminal.of("rejected", "rejected", stage=stage_id))

    async def _snapshot(self) -> Snapshot | None:
        """What there is to review, within the request's time; None: no checkout was opened."""
        if self._tools is None or self._tools.opened is None:
            return None
        async with self._in_time():
            return await self._tools.snapshot()

    async def _record_review(
        self, stage_id: str, answer: StageAnswer, snapshot: Snapshot | None, *, repairs: tuple[str, ...]
    ) -> None:
        decision = answer.fields["decision"]
        review = Review.model_validate(
            {
                "decision": decision,
                "summary": answer.fields["summary"],
                "repairs": repairs,
                "flags": snapshot.flags if snapshot else (),
                "content_hash": snapshot.content_hash if snapshot else None,
            }
        )
        patch = summarise_snapshot(snapshot, reviewed=decision == "pass") if snapshot else None
        payload = ReviewDecided(stage_id=stage_id, review=review, output=answer.fields["output"], patch=patch)
        self._journal.hold(
            NewEvent(type="review.decided", payload=payload),
            artifacts=[patch_artifact(snapshot)] if snapshot else [],
        )
        if decision != "pass":  # it may be the last that is stored before the decision
            await self._journal.flush()

    # ---- the end

    async def _finalize(self, *, output: str, content_hash: str | None) -> Decision:
        if self._tools is None or self._context.link is None:
            self._commit()
            return Decision(terminal=Terminal.completed(), output=output)
        finalizer = Finalizer(self._context, self._journal, self._work, self._tools, self._context.link)
        async with self._in_time():
            await self._tools.ensure_open()
            left_ms = int((self._wall_ends - asyncio.get_running_loop().time()) * 1000)
            snapshot = await finalizer.approve(content_hash=content_hash, remaining_ms=left_ms)
            approved = await finalizer.wait_for_approval(snapshot, working=self._working)
        self._commit()
        end = finalizer.deliver if approved else finalizer.discard
        return await despite_cancel(end(snapshot, output=output))

    def _in_time(self) -> AbstractAsyncContextManager[None]:
        """Bounds what goes on between stages: a node that doesn't answer can't outlast the request's time."""
        return until(self._wall_ends, wall_clock_terminal(self._limits.wall_clock_ms))

    def _commit(self) -> None:
        """The point of no return; a cancel that was asked for before it still wins."""
        if not self._context.control.commit():
            raise asyncio.CancelledError

    async def _keep_plan(self, plan: StageAnswer) -> None:
        text = f"# Plan of run {self._journal.view.id}\n\n{plan.fields['plan']}\n\n## Verification\n\n"
        text += plan.fields["verification"] + "\n"
        self._journal.hold(
            NewEvent(type="plan.ready", payload=PlanReady(stage_id="plan", sha256=text_sha256(text))),
            artifacts=[Artifact(name="plan", text=text, media_type="text/markdown; charset=utf-8")],
        )
        if self._tools is not None:
            async with self._in_time():
                await self._tools.ensure_open()
                await self._tools.store_artifact("plan", text)

    # ---- one stage

    async def _stage(self, kind: StageKind, stage_id: str, **inputs: Any) -> StageAnswer:
        opening = self._begin(kind, stage_id)
        clock = stage_clock(
            self._limits,
            kind=kind,
            stage_id=stage_id,
            wall_ends=self._wall_ends,
            now=asyncio.get_running_loop().time(),
        )
        with self._work.item(WorkKind.STAGE, stage_id, name=stage_id, stop=self._stage_stopped) as item:
            stage = self._input(kind, stage_id, item.work_id, **inputs)
            answer = await self._run_stage(stage, clock, opening)
        self._commands.extend(answer.commands)
        return answer

    def _stage_stopped(self) -> None:
        """An operator stopped this stage alone, which ends the run; a cancel of the run was asked before."""
        clock = self._context.clock
        asked = CancelAsked(by="operator", reason=None, at=clock.now(), at_monotonic=clock.monotonic())
        self._context.control.ask(asked)

    async def _run_stage(
        self, stage: StageInput, clock: StageClock, opening: Sequence[NewEvent]
    ) -> StageAnswer:
        loop = asyncio.get_running_loop()

        def remaining_s() -> float:
            return max(0.0, clock.ends - loop.time())

        runner = self._runner(stage.kind)
        if self._tools is not None:
            self._tools.remaining_s = remaining_s
        try:
            async with asyncio.timeout_at(clock.ends):
                ask = runner.answer if self._journal.view.profile == "answer" else runner.run
                answer = await ask(stage, partial=self.partial, opening=opening, remaining_s=remaining_s)
            self.running_stage = None
            return answer
        except OwnershipError:
            raise
        except Exception as error:
            expired = loop.time() >= clock.ends
            end = clock.terminal() if expired else classify_error(error, stage_id=stage.stage_id)
            if end.class_ is None or end.code is None:
                raise InternalError("a stage failed without a class") from error
            failed = StageFailed(stage_id=stage.stage_id, class_=end.class_, code=end.code)
            await self._journal.append(NewEvent(type="stage.failed", payload=failed, work_id=stage.work_id))
            self.running_stage = None
            if expired:
                raise Ended(end) from error
            raise

    def _runner(self, kind: StageKind) -> StageRunner:
        return StageRunner(
            pool=self._context.pools[kind],
            tools=self._tools,
            journal=self._journal,
            registry=self._context.registry,
            budget=self._budget,
            clock=self._context.clock,
            ids=self._context.ids,
            working=self._working,
            take_messages=self._context.control.messages.take,
        )

    def _input(self, kind: StageKind, stage_id: str, work_id: str, **inputs: Any) -> StageInput:
        view = self._journal.view
        request = self._context.stored.request
        binding = self._context.binding
        instructions = [text for text in (binding.instructions, request.instructions) if text]
        return StageInput(
            run_id=self._context.stored.outside_id,
            session_id=view.session_id,
            stage_id=stage_id,
            kind=kind,
            work_id=work_id,
            request_text=request.text(),
            messages=self._context.control.messages.heard,
            instructions="\n\n".join(instructions) or None,
            brief=self._prepared.brief if self._prepared else "",
            tools=self._offered(kind),
            options=binding.stage(kind).options,
            limits=view.limits,
            require_evidence=binding.require_evidence and self._tools is not None,
            session_context=self._session_context,
            earlier=request.earlier,
            images=request.images(),
            plan=self._plan.fields["plan"] if self._plan and kind != "plan" else None,
            verification=self._plan.fields["verification"] if self._plan and kind != "plan" else None,
            commands=tuple(self._commands),
            **inputs,
        )

    def _offered(self, kind: StageKind) -> tuple[ToolSpec, ...]:
        """The workspace's tools; work may also start child runs, where the binding says so."""
        known = self._prepared.tools if self._prepared is not None else ()
        delegates = kind == "work" and self._tools is not None and self._tools.delegation is not None
        return (*known, DELEGATE) if delegates else known

    def _begin(self, kind: StageKind, stage_id: str) -> list[NewEvent]:
        """The facts that the stage's first append carries; the first stage starts the clock."""
        self.stage_id = self.running_stage = stage_id
        self.partial = Partial()
        status = next_status(self._journal.view.status, _TRIGGERS[kind])
        started = StageStarted(stage_id=stage_id, status=status, prompts_version=PROMPTS_VERSION)
        event = NewEvent(
            type="stage.started",
            payload=started,
            work_id=self._work.id_of(stage_id),
            parent_work_id=self._work.root_id,
        )
        return [event] if self._wall_ends else [self._start_clock(), event]

    def _start_clock(self) -> NewEvent:
        started_at = self._context.clock.now()
        wall_ms = self._limits.wall_clock_ms
        self._wall_ends = asyncio.get_running_loop().time() + wall_ms / 1000
        payload = RunStarted(
            started_at=started_at,
            deadline_at=started_at + timedelta(milliseconds=wall_ms),
            limits=self._limits,
            prepared=as_prepared(self._context, self._journal, self._prepared),
            queue=self._queue,
        )
        return NewEvent(type="run.started", payload=payload, work_id=self._work.root_id)

    def _start_clock_early(self) -> None:
        """Profile `direct` opens its checkout before its first round, on the run's own time.

        That it has started is stored with what comes at once: that the open is about to be sent.
        """
        self._journal.hold(self._start_clock())
