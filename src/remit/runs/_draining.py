"""What is still there when a run's end is decided: stopped, read, put away, waited for, or named.

Two barriers. Where a cancel had been requested by the time the end was known, every residency is awaited;
where none had been, all but those that the preserve policy keeps: a kept checkout is put away after the
terminal, and what goes wrong with that stands in the host log.
"""

from __future__ import annotations

import asyncio
import logging

from remit.contract import AbandonedWork, PatchSummary, WorkKind
from remit.errors import NodeError, RemitError
from remit.events import Artifact
from remit.results import patch_artifact, summarise_snapshot
from remit.runs._context import RunContext
from remit.runs._journal import RunJournal
from remit.runs._tools import RunTools
from remit.runs._work import RunWork

_log = logging.getLogger(__name__)
_KINDS = frozenset(kind.value for kind in WorkKind)


class Draining:
    """Drains one run. It bounds its own time; what doesn't end in it is abandoned by name."""

    def __init__(
        self, context: RunContext, journal: RunJournal, work: RunWork, tools: RunTools | None
    ) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._tools = tools
        self._kept = False
        self._stopped_all = False
        self.patch: PatchSummary | None = None
        """Of what the checkout held at the end, where that isn't what was reviewed."""
        self.artifacts: list[Artifact] = []
        self.abandoned: list[AbandonedWork] = list(context.control.unended)
        """What couldn't be shown to have ended."""

    async def drain(self, *, completed: bool) -> None:
        """Stop, read and put away what is left, then wait for the barrier that is due."""
        try:
            async with asyncio.timeout(self._context.times.stop_within_s):
                await self._close_checkout(completed)
                await self._work.registry.wait_children_closed(self._work.session_id, self._work.root_id)
                await self._barrier()
        except TimeoutError:
            self._abandon()

    async def _barrier(self) -> None:
        residencies = self._work.residencies
        if self._context.control.asked is not None:
            await residencies.wait_all_drained()
        else:
            await residencies.wait_drained()

    def _abandon(self) -> None:
        """Name what is left, and let it hold nothing back any more."""
        self._kept = False
        self._name_unstopped()
        for item in self._work.registry.open_items(self._work.session_id, self._work.root_id):
            if item.work_id == self._work.root_id:
                continue
            named = AbandonedWork(work_id=item.work_id, kind=item.kind.value, label=item.label)
            self.abandoned.append(named)
            self._work.registry.finish(self._work.session_id, item.work_id, "abandoned")
        left = self._work.residencies.abandon()
        if not self.abandoned:
            self.abandoned += [self._held_back(label) for label in left]

    def _name_unstopped(self) -> None:
        """Calls that never answered a stop, where all of the run couldn't be stopped either."""
        if self._tools is not None and not self._stopped_all:
            self.abandoned += self._tools.unstopped

    def _held_back(self, label: str) -> AbandonedWork:
        kind = label if label in _KINDS else WorkKind.NODE_CALL.value
        return AbandonedWork(work_id=self._work.id_of(label), kind=kind, label=label)

    # ---- the checkout

    async def _close_checkout(self, completed: bool) -> None:
        """End the run's processes, read its patch, close its checkout: owed when open was sent."""
        tools = self._tools
        if tools is None or tools.checkout is None:
            return
        keeps = self._keeps(completed)
        try:
            if not completed:
                await tools.stop_all()
                self._stopped_all = True
            if tools.opened is not None and not (completed and self._journal.view.patch):
                await self._keep_patch(tools)
            if keeps and self._context.control.asked is None:
                self._kept = True
                tools.checkout.keep()
            else:
                await tools.cleanup(keep=keeps)
        except NodeError as error:
            named = AbandonedWork(
                work_id=self._work.id_of("checkout"), kind="node_call", label=f"checkout: {error.message}"
            )
            self._name_unstopped()
            self.abandoned.append(named)
            tools.checkout.release()

    def _keeps(self, completed: bool) -> bool:
        match self._context.stored.request.preserve or self._context.binding.preserve:
            case "always":
                return True
            case "never":
                return False
            case _:
                return not completed

    async def _keep_patch(self, tools: RunTools) -> None:
        """Read what the checkout holds; work that can't be read any more doesn't change how the run ended."""
        try:
            snapshot = await tools.snapshot(end_leftovers=True)
        except NodeError as error:
            _log.warning("run %s: its patch can't be read: %s", self._journal.view.id, error.message)
            return
        reviewed = self._journal.view.patch
        if reviewed is not None and reviewed.sha256 == snapshot.patch_sha256:
            return
        self.patch = summarise_snapshot(snapshot, reviewed=False)
        self.artifacts.append(patch_artifact(snapshot))

    async def put_away(self) -> None:
        """After the terminal: put the checkout away that is kept. A failure changes nothing of the end."""
        if not self._kept or self._tools is None or self._tools.checkout is None:
            return
        try:
            async with asyncio.timeout(self._context.times.stop_within_s):
                await self._tools.cleanup(keep=True)
        except (NodeError, TimeoutError) as error:
            await self._note(f"{type(error).__name__}: {error}")
        finally:
            self._tools.checkout.release()

    async def _note(self, message: str) -> None:
        view, tenant = self._journal.view, self._context.stored.tenant
        _log.warning("run %s: its kept checkout couldn't be put away: %s", view.id, message)
        try:
            await self._context.store.log(view.id, "checkout.left", {"message": message}, tenant=tenant)
        except RemitError as error:
            _log.warning("run %s: nor could that be put on record: %s", view.id, error.message)
