"""The live registry of everything that runs and can be cancelled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Final

from remit.contract import How, WorkKind
from remit.errors import MisuseError
from remit.primitives import Clock
from remit.work._cleanup import Cleanup, CleanupFailure, CleanupRunner, Cleanups
from remit.work._entry import Entry, ObservationToken
from remit.work._handles import Handle, ServiceCallHandle, is_cancellable
from remit.work._items import (
    ActivityCount,
    ClosedItem,
    ObservationPage,
    ObservedStage,
    OpenItem,
    Registration,
    WorkId,
    WorkSnapshot,
    WorkSpec,
)
from remit.work._metrics import Metrics
from remit.work._permits import (
    Binding,
    SharedExecutionLink,
    SharedExecutionObservation,
    SharedExecutionPermit,
)
from remit.work._shown import page_entry, snapshots
from remit.work._tree import Tree

_LONGEST_PAGE: Final = 128


class WorkRegistry:
    """What runs, who started it, and who stops it. Synchronous; belongs to one loop's thread.

    Asking and waiting are two tools: `cancel` flags an item and all below it, lets their handles be fired,
    and returns at once; `wait_closed` returns when that part of the tree is closed and empty. Nothing that a
    handle does, or fails to do, takes a flag back.

    Args:
        clock: Its monotonic time measures stages and cleanups.
        cleanups: Where handles are fired; a `CleanupScope` that is open for as long as work is cancelled.
        metrics: Where cleanups are counted; None: a registry's own.
        on_cleanup_failed: Told of each handle that raised after a cancel.
        mask: Takes secrets out of an error's text before that is logged or handed on. It stays readable, for
            who makes labels of what others wrote.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        cleanups: Cleanups,
        metrics: Metrics | None = None,
        on_cleanup_failed: Callable[[CleanupFailure], None] | None = None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self.metrics: Final = metrics if metrics is not None else Metrics()
        self.mask: Final = mask
        self._clock = clock
        self._cleanups = cleanups
        self._runner = CleanupRunner(
            clock=clock, metrics=self.metrics, on_failed=on_cleanup_failed, mask=mask
        )
        self._tree = Tree()
        self._thread: int | None = None

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            if self._thread is not None:
                raise MisuseError("the work registry belongs to the thread of its loop")
            self._thread = get_ident()

    # ---- registration and cancellation

    def register(self, session_id: str, spec: WorkSpec) -> Registration:
        """Take a piece of work in.

        Below a cancelled parent, or under an id that was cancelled and is still registered, it is born
        cancelled: flagged before this returns, its handle fired once, and so is what already hangs below it.
        A service call's token is tripped before this returns.

        An id that is registered already is replaced: new owner, no observed stage, no shared execution; the
        old handle isn't fired.
        """
        self._check_thread()
        entry = Entry(session_id, spec)
        old = self._tree.insert(entry)
        if entry.cancelled:
            self._fire_at_registration(entry)
            for below in self._tree.flag_below(entry, now=self._clock.monotonic()):
                self._fire_at_registration(below)
        return Registration(is_cancellable(spec.handle), old is None)

    def replace_cancellation(self, session_id: str, work_id: str, handle: Handle) -> bool:
        """From now on a cancel fires this handle; false when there is no such item.

        The old one isn't fired. On an item that is cancelled already the new one is fired now.
        """
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is None:
            return False
        entry.handle = handle
        if entry.cancelled:
            self._fire_at_registration(entry)
        return True

    def cancel(self, session_id: str, work_id: str) -> list[WorkId]:
        """Flag an item and all below it, and let their handles be fired; awaits none of them.

        Returns:
            What is newly flagged, the item itself first; empty when there is no such item or it was flagged.
        """
        self._check_thread()
        top = self._tree.find(session_id, work_id)
        if top is None or top.cancelled:
            return []
        now = self._clock.monotonic()
        self._tree.subtree_of(top)
        flagged = self._tree.flag(top, now=now)
        self._cleanups.launch([_cleanup(entry, counted=True) for entry in flagged], self._runner.run)
        return [WorkId(entry.session_id, entry.work_id) for entry in flagged]

    def cancel_everywhere(self, work_id: str) -> list[WorkId]:
        """Cancel this id in every session, one session after the other."""
        self._check_thread()
        flagged: list[WorkId] = []
        for session_id in sorted(self._tree.sessions):
            flagged += self.cancel(session_id, work_id)
        return flagged

    def is_cancelled(self, session_id: str, work_id: str) -> bool:
        """Whether the item is registered and flagged: asked right before anything is sent."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        return entry is not None and entry.cancelled

    def finish(self, session_id: str, work_id: str, how: How = "closed", *, pids: Sequence[int] = ()) -> bool:
        """The work has ended; true the first time.

        Args:
            session_id: The item's session.
            work_id: The item.
            how: How it was stopped; it and `pids` go into the receipt of the cancel that had reached it.
            pids: Processes that were stopped, or are left over.
        """
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is None:
            return False
        now = self._clock.monotonic() if entry.subtrees else 0.0
        self._tree.remove(entry, how=how, pids=pids, now=now)
        return True

    def take(self, session_id: str, work_id: str) -> WorkSpec | None:
        """Remove an item and hand over its spec, guard included; None when there is no such item."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        return None if entry is None else self._take(entry)

    def _take(self, entry: Entry) -> WorkSpec:
        self._tree.remove(entry, how="closed", pids=(), now=self._clock.monotonic())
        return entry.spec

    def find_spec(self, session_id: str, work_id: str) -> WorkSpec | None:
        """The spec of a registered item, for the module that registered it."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        return None if entry is None else entry.spec

    def _fire_at_registration(self, entry: Entry) -> None:
        if isinstance(entry.handle, ServiceCallHandle):
            entry.handle.token.trip()
        else:
            self._cleanups.launch([_cleanup(entry, counted=False)], self._runner.run)

    # ---- waiting

    async def wait_closed(self, session_id: str, work_id: str) -> tuple[ClosedItem, ...]:
        """Wait until an item and all below it have ended; one that isn't registered counts as ended.

        Returns:
            What ended since the item was cancelled.

        Cancellation: the wait just ends; what is asked to stop goes on stopping.
        """
        return await self._wait(session_id, work_id, below=False)

    async def wait_children_closed(self, session_id: str, work_id: str) -> tuple[ClosedItem, ...]:
        """Wait until all below an item has ended, for the item's owner, who ends it last.

        Whoever calls this says that nothing more is to be started there; what comes all the same before the
        wait is over is waited for too.

        Returns:
            What ended since the item was cancelled.

        Cancellation: the wait just ends.
        """
        return await self._wait(session_id, work_id, below=True)

    async def _wait(self, session_id: str, work_id: str, *, below: bool) -> tuple[ClosedItem, ...]:
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is None:
            return self.closed_items(session_id, work_id)
        subtree = self._tree.subtree_of(entry)
        await subtree.wait(below=below)
        return subtree.ended()

    def keep_account(self, session_id: str, work_id: str) -> None:
        """Keep what ends of an item's subtree after a cancel, also after one that reaches it from above.

        For an item that gives a receipt of its own and has somebody above it: else only the subtree that was
        cancelled itself is told of.
        """
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is not None:
            self._tree.subtree_of(entry)

    def closed_items(self, session_id: str, work_id: str) -> tuple[ClosedItem, ...]:
        """What has ended of a cancelled item's subtree since the cancel, in that order.

        It is known for as long as its session has anything registered.
        """
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        subtree = None if session is None else session.subtrees.get(work_id)
        return () if subtree is None else subtree.ended()

    def open_items(self, session_id: str, work_id: str) -> tuple[OpenItem, ...]:
        """What of an item's subtree hasn't ended, the item itself included."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is not None:
            return self._tree.subtree_of(entry).open_items()
        session = self._tree.sessions.get(session_id)
        subtree = None if session is None else session.subtrees.get(work_id)
        return () if subtree is None else subtree.open_items()

    # ---- observation (for the server's own modules)

    def observation_token(self, session_id: str, work_id: str) -> ObservationToken | None:
        """The right to observe an item as it is now; None when there is no such item. Changes nothing."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        return None if entry is None else ObservationToken(entry, entry.revision)

    def observe(self, token: ObservationToken, stage: ObservedStage) -> ObservationToken | None:
        """Record where an item is; returns the token that supersedes this one.

        None, and nothing is changed, when the token is superseded, or its registration replaced or gone.
        """
        self._check_thread()
        entry, revision = token.unseal()
        if entry is None or revision != entry.revision or not self._is_current(entry):
            return None
        entry.stage = stage
        entry.stage_at = self._clock.monotonic()
        entry.revision += 1
        return ObservationToken(entry, entry.revision)

    def take_observed(self, token: ObservationToken) -> WorkSpec | None:
        """Remove the registration that a token belongs to, whatever its stage is by now.

        None when that registration was replaced or is gone.
        """
        self._check_thread()
        entry, _ = token.unseal()
        return self._take(entry) if entry is not None and self._is_current(entry) else None

    def _is_current(self, entry: Entry) -> bool:
        return self._tree.find(entry.session_id, entry.work_id) is entry

    def observation_page(
        self, session_id: str, *, after: str | None = None, limit: int = _LONGEST_PAGE
    ) -> ObservationPage:
        """Up to 128 items of one session, ordered by work id, beyond the cursor.

        Live and best effort: two pages aren't one snapshot.
        """
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        if session is None:
            return ObservationPage(entries=(), next_after=None)
        ids = session.ids()
        start = 0 if after is None else bisect_right(ids, after)
        page = ids[start : start + min(max(limit, 1), _LONGEST_PAGE)]
        now = self._clock.monotonic()
        entries = tuple(page_entry(session.entries[work_id], now) for work_id in page)
        more = start + len(page) < len(ids)
        return ObservationPage(entries=entries, next_after=page[-1] if more else None)

    # ---- listings

    def snapshot(self, session_id: str) -> tuple[WorkSnapshot, ...]:
        """The items of one session, ordered by work id."""
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        return () if session is None else snapshots(session, self._clock.monotonic())

    def active_all(self) -> tuple[tuple[str, WorkSnapshot], ...]:
        """The items of all sessions with their session's id, ordered by session, then work id."""
        self._check_thread()
        now = self._clock.monotonic()
        return tuple(
            (session_id, found)
            for session_id in sorted(self._tree.sessions)
            for found in snapshots(self._tree.sessions[session_id], now)
        )

    def active_ids_for_session(self, session_id: str) -> tuple[str, ...]:
        """The ids of one session, in order and once each, cancelled ones included."""
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        return () if session is None else tuple(session.ids())

    def active_count(self) -> int:
        """How many items there are in all sessions."""
        self._check_thread()
        return self._tree.count

    def activity_count(self, session_id: str, *, budget: int) -> ActivityCount:
        """How many items a session has, counted up to a budget; one below 0 is 0."""
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        count, budget = 0 if session is None else len(session.entries), max(budget, 0)
        return ActivityCount(min(count, budget), complete=count <= budget)

    # ---- shared execution

    def bind_shared_execution(self, session_id: str, work_id: str, permit: SharedExecutionPermit) -> bool:
        """Bind a permit to the workflow node that executes; an earlier binding of the item ends.

        False when the permit is released or names another session, or there is no such item, or it isn't a
        workflow node.
        """
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        link = permit.link
        if entry is None or link is None or link.session_id != session_id:
            return False
        if entry.spec.kind is not WorkKind.WORKFLOW_NODE:
            return False
        if entry.binding is not None:
            entry.binding.ended = True
        entry.binding = Binding(entry, permit)
        return True

    def proves_shared_execution(self, session_id: str, work_id: str, link: SharedExecutionLink) -> bool:
        """Whether exactly this execution runs in this item now, with leave."""
        found = self.find_shared_execution(session_id, work_id)
        return found is not None and found.provenance == link

    def find_shared_execution(self, session_id: str, work_id: str) -> SharedExecutionObservation | None:
        """What is bound to an item; may be kept, and loses its provenance when the proof ends."""
        self._check_thread()
        entry = self._tree.find(session_id, work_id)
        if entry is None or entry.binding is None:
            return None
        return SharedExecutionObservation(entry.binding)

    def shared_executions(self, session_id: str, run_id: str) -> tuple[SharedExecutionLink, ...]:
        """What runs now, with leave, below `workflow:RUN` of a session, ordered by work id."""
        self._check_thread()
        session = self._tree.sessions.get(session_id)
        kids = () if session is None else session.children.get(f"workflow:{run_id}", ())
        bound = sorted((kid.work_id, kid.binding) for kid in kids if kid.binding is not None)
        return tuple(link for _, binding in bound if (link := binding.proved()) is not None)


def _cleanup(entry: Entry, *, counted: bool) -> Cleanup:
    return Cleanup(entry.session_id, entry.work_id, entry.spec.kind, entry.handle, counted)
