"""From a passed review to a delivered result.

    leftovers ended, content as reviewed ─> checks ─> acknowledgement ─> delivery intent ─> delivery

The recorded intent is the commit point: before it a cancel or a deadline ends the run, after it neither
changes anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from remit.contract import (
    CheckCompleted,
    ChecksRequest,
    Delivered,
    Delivery,
    DeliveryCompleted,
    DeliveryIntended,
    DeliveryMode,
    PatchSummary,
    RunFinalizing,
    RunView,
    Snapshot,
    Terminal,
    WorkKind,
)
from remit.errors import NodeError
from remit.events import NewEvent
from remit.nodes import NodeLink
from remit.requests import default_branch
from remit.results import commit_message, patch_artifact, summarise_snapshot
from remit.runs._context import RunContext
from remit.runs._endings import Decision, Ended
from remit.runs._journal import RunJournal
from remit.runs._tools import RunTools
from remit.runs._work import RunWork
from remit.usage import WorkingTime

_log = logging.getLogger(__name__)
_NAMED_PATHS = 10


class VoidPass(Exception):
    """The content isn't what the review passed: the review has to be asked again."""


class BrokenChecks(Exception):
    """A check is worse than on the base; `feedback` tells the work stage which and how."""

    def __init__(self, feedback: str) -> None:
        super().__init__(feedback)
        self.feedback = feedback


class Finalizer:
    """Takes one finished piece of work through gate and delivery."""

    def __init__(
        self, context: RunContext, journal: RunJournal, work: RunWork, tools: RunTools, link: NodeLink
    ) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._tools = tools
        self._link = link

    async def approve(self, *, content_hash: str | None, remaining_ms: int) -> Snapshot:
        """Gate and handshake; what comes back may be delivered.

        Args:
            content_hash: What the review passed; None in profile `direct`.
            remaining_ms: What is left of the request's time.

        Raises:
            VoidPass: The content has changed since the review.
            BrokenChecks: A check is worse than before.
            Ended: Delivery was refused.
        """
        snapshot = await self._tools.snapshot(end_leftovers=True)
        finalizing = RunFinalizing(content_hash=snapshot.content_hash, leftovers=snapshot.leftovers)
        self._journal.hold(NewEvent(type="run.finalizing", payload=finalizing))
        if content_hash is not None and snapshot.content_hash != content_hash:
            await self._journal.flush()  # it may have been the last review
            raise VoidPass
        if self._tools.has_checks:
            await self._journal.flush()
            await self._check(remaining_ms)
        await self._handshake()
        refused = self._why_refused(snapshot)
        if refused is not None:
            await self._journal.flush()
            raise self._refused(refused)
        return snapshot

    def _leaves_no_mark(self, snapshot: Snapshot) -> bool:
        """Whether there is nothing to deliver."""
        return self._context.stored.request.in_place or not snapshot.files

    async def _check(self, remaining_ms: int) -> None:
        request = ChecksRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            remaining_ms=max(1, remaining_ms),
        )
        with self._work.item(WorkKind.NODE_CALL, "checks", name="checks"):
            done = await self._link.checks(request)
        if done.checks:
            await self._journal.append(
                *(
                    NewEvent(type="check.completed", payload=CheckCompleted(check=check))
                    for check in done.checks
                )
            )
        if any(check.gate == "worse" for check in done.checks):
            raise BrokenChecks("\n\n".join(done.broken))

    async def _handshake(self) -> None:
        if self._context.stored.request.acknowledge != "required":
            return
        await self._journal.flush()  # who acknowledges has seen what
        control = self._context.control
        control.acknowledged = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._context.times.acknowledge_ms / 1000):
                accepted = await control.acknowledged
        except TimeoutError:
            accepted = False
        finally:
            control.acknowledged = None
        if not accepted:
            raise self._refused("the caller didn't acknowledge the result")

    async def wait_for_approval(self, snapshot: Snapshot, *, working: WorkingTime) -> bool:
        """Wait for a person's word where one was asked for; False: the patch is discarded.

        Cancellation: nobody waits any more, and a word that comes later changes nothing.
        """
        if not self._needs_approval or not snapshot.files:
            return True
        control = self._context.control
        waiting = control.approval = asyncio.get_running_loop().create_future()
        try:
            await self._journal.append(
                NewEvent(
                    type="run.finalizing",
                    payload=RunFinalizing(
                        content_hash=snapshot.content_hash,
                        delivery=Delivery(mode=self.mode, status="awaiting_approval", ref=self._branch),
                        patch=self._summary(snapshot),
                    ),
                ),
                artifacts=[patch_artifact(snapshot)],
            )
            with working.waiting():
                return await waiting
        finally:
            control.approval = None

    @property
    def _needs_approval(self) -> bool:
        asked = self._context.stored.request.delivery
        return asked is not None and asked.approval == "required"

    def _summary(self, snapshot: Snapshot) -> PatchSummary:
        return summarise_snapshot(snapshot, reviewed=self._journal.view.profile == "reviewed")

    def _why_refused(self, snapshot: Snapshot) -> str | None:
        """Which paths stand against a delivery; None: none do."""
        if snapshot.frozen:
            return f"it touches frozen paths: {_named(snapshot.frozen)}"
        if snapshot.protected and self.mode == "apply" and not self._may_touch_protected:
            return f"it touches protected paths: {_named(snapshot.protected)}; they need to be allowed"
        return None

    @property
    def _may_touch_protected(self) -> bool:
        """Said with the request, or left to the person whose word is waited for."""
        return self._context.stored.request.allow_protected or self._needs_approval

    def _refused(self, why: str) -> Ended:
        return Ended(Terminal.of("workspace", "delivery_refused"), detail=self._told(why))

    def _told(self, why: str) -> str:
        """Say at once why nothing is applied; it goes on record, too."""
        _log.warning("run %s: nothing was applied: %s", self._journal.view.id, why)
        return why

    # ---- delivery

    @property
    def mode(self) -> DeliveryMode:
        """How this run delivers; one in place has nothing left to deliver."""
        return "patch" if self._context.stored.request.in_place else delivery_mode(self._context)

    async def deliver(self, snapshot: Snapshot, *, output: str) -> Decision:
        """Record the intent and deliver. The caller has committed the run's control.

        Cancellation: none; the caller shields it.
        """
        if self._context.stored.request.in_place:
            return Decision(terminal=Terminal.completed(), output=output)
        summary = self._summary(snapshot)
        if self._leaves_no_mark(snapshot):
            # Nothing was done that hangs on it: it is stored with the decision, which is next.
            self._journal.hold(self._completed(Delivery(mode=self.mode, status="skipped")))
            return Decision(terminal=Terminal.completed(), output=output)
        await self._journal.append(
            NewEvent(type="delivery.intent", payload=DeliveryIntended(mode=self.mode, patch=summary)),
            artifacts=[patch_artifact(snapshot)],
        )
        if self.mode == "patch":
            return await self._done(Delivery(mode=self.mode, status="delivered"), output=output)
        request = self._context.stored.request
        try:
            delivered = await self._tools.deliver(
                snapshot,
                allow_protected=self._may_touch_protected,
                unreviewed=request.unreviewed,
                branch=self._branch,
                message=self._message(summary, output) if self._branch is not None else "",
            )
        except NodeError as error:
            if error.reason != "refused":
                raise
            return await self._forbidden(error.message, output)
        return await self._applied(delivered, output)

    async def _forbidden(self, why: str, output: str) -> Decision:
        """The node can't write there, and has left everything as it was."""
        _log.warning("run %s: %s", self._journal.view.id, why)
        decision = await self._done(Delivery(mode=self.mode, status="skipped"), output=output)
        return replace(decision, terminal=Terminal.of("workspace", "delivery_refused"), detail=why)

    async def discard(self, snapshot: Snapshot, *, output: str) -> Decision:
        """End without a delivery: a person said so. Cancellation: none; the caller shields it."""
        return await self._done(Delivery(mode=self.mode, status="discarded"), output=output)

    @property
    def _branch(self) -> str | None:
        return branch_of(self._context, self._journal.view)

    def _message(self, summary: PatchSummary, output: str) -> str:
        text = self._context.stored.request.text()
        return commit_message(self._journal.view, request_text=text, output=output, patch=summary)

    async def _applied(self, delivered: Delivered, output: str) -> Decision:
        status = "skipped" if delivered.refused else delivered.status
        decision = await self._done(
            Delivery(mode=self.mode, status=status, ref=delivered.ref or self._branch),
            output=output,
            paths=delivered.paths,
        )
        if delivered.refused:
            what = delivered.why or "they are protected or frozen"
            why = self._told(f"these paths can't be delivered: {_named(delivered.paths)}: {what}")
            return Decision(terminal=Terminal.of("workspace", "delivery_refused"), output=output, detail=why)
        if delivered.status == "conflict":
            why = self._told(delivered.why or f"changed since the run's base: {_named(delivered.paths)}")
            return Decision(terminal=Terminal.of("workspace", "delivery_conflict"), output=output, detail=why)
        if delivered.status not in ("delivered", "skipped"):
            raise NodeError(f"the node answered {delivered.status} to a delivery", reason="unavailable")
        return decision

    async def _done(self, delivery: Delivery, *, output: str, paths: tuple[str, ...] = ()) -> Decision:
        await self._journal.append(self._completed(delivery, paths=paths))
        return Decision(terminal=Terminal.completed(), output=output)

    def _completed(self, delivery: Delivery, *, paths: tuple[str, ...] = ()) -> NewEvent:
        payload = DeliveryCompleted(delivery=delivery, paths=paths)
        return NewEvent(type="delivery.completed", payload=payload)


def delivery_mode(context: RunContext) -> DeliveryMode:
    """How a run delivers."""
    asked = context.stored.request.delivery
    return asked.mode if asked is not None else context.binding.delivery


def branch_of(context: RunContext, view: RunView) -> str | None:
    """The branch that a run's result goes to; None: it goes to none."""
    if delivery_mode(context) != "branch":
        return None
    asked = context.stored.request.delivery
    named = asked.branch if asked is not None else None
    return named or default_branch(view.id)


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_PATHS
    return ", ".join(paths[:_NAMED_PATHS]) + (f" and {more} more" if more > 0 else "")
