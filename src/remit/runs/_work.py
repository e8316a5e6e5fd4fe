"""A run's own entries in the work registry: the root, and everything below it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from remit.contract import How, WorkFinished, WorkKind, WorkRegistered
from remit.events import NewEvent
from remit.primitives import Clock
from remit.stages import ToolUse, call_label
from remit.work import (
    CancelToken,
    ClosedItem,
    Handle,
    InvocationHandle,
    NodeCallHandle,
    ObservedStage,
    Observer,
    Residencies,
    ScopeHandle,
    WorkId,
    WorkRegistry,
    WorkSpec,
)


class WorkItem:
    """One registered piece of work, from the side of whoever does it."""

    __slots__ = ("_began", "_clock", "_observer", "how", "kind", "label", "parent", "pids", "work_id")

    def __init__(self, kind: WorkKind, label: str, *, work_id: str, parent: str | None, clock: Clock) -> None:
        self.kind = kind
        self.label = label
        self.work_id = work_id
        self.parent = parent
        self.how: How = "closed"
        """How it ends, unless told otherwise."""
        self.pids: tuple[int, ...] = ()
        self._clock = clock
        self._began = clock.monotonic()
        self._observer: Observer | None = None

    def observed_by(self, observer: Observer, *, at: ObservedStage | None) -> None:
        """It is registered, and is here now; None: it is nowhere in particular."""
        self._observer = observer
        if at is not None:
            observer.see(at)

    def see(self, stage: ObservedStage) -> None:
        """It is here now, for whoever looks at the live work."""
        if self._observer is not None:
            self._observer.see(stage)

    def registered(self) -> NewEvent:
        """The fact that it began, for kinds without events of their own."""
        return NewEvent(
            type="work.registered",
            payload=WorkRegistered(kind=self.kind.value, label=self.label),
            work_id=self.work_id,
            parent_work_id=self.parent,
        )

    def finished(self) -> NewEvent:
        """The fact that it ended, now."""
        took_ms = int((self._clock.monotonic() - self._began) * 1000)
        return NewEvent(
            type="work.finished",
            payload=WorkFinished(kind=self.kind.value, label=self.label, how=self.how, duration_ms=took_ms),
            work_id=self.work_id,
            parent_work_id=self.parent,
        )


class RunWork:
    """Registers, names and finishes the work of one run.

    A work id is the run's id, or begins with it and a dot: unique over all sessions. Each piece of work
    holds a residency for as long as it goes on, labelled by its kind.

    Args:
        registry: Where it is registered.
        session_id: The run's session, as the registry knows it.
        run_id: The run.
        residencies: The run's.
        clock: How long each piece took.
        note: Told of the beginning and the end of each node call, once it has ended.
    """

    def __init__(
        self,
        registry: WorkRegistry,
        *,
        session_id: str,
        run_id: str,
        residencies: Residencies,
        clock: Clock,
        note: Callable[[NewEvent, NewEvent], object] = lambda began, ended: None,
    ) -> None:
        self.registry = registry
        self.residencies = residencies
        self.session_id = session_id
        self.root_id = run_id
        self._clock = clock
        self._numbers = itertools.count(1)
        self._note = note
        self._root: Observer | None = None

    def id_of(self, name: str) -> str:
        """The work id of a named piece of this run."""
        return f"{self.root_id}.{name}"

    def begin(self, stop: Callable[[], object], *, parent: WorkId | None = None) -> None:
        """Register the run itself.

        Args:
            stop: Called when a cancel reaches it; it must not wait.
            parent: The call of another run that started this one; None: nobody's child.
        """
        spec = WorkSpec(
            work_id=self.root_id,
            kind=WorkKind.RUN,
            label="run",
            handle=ScopeHandle(stop),
            parent_work_id=parent.work_id if parent is not None else None,
            parent_session_id=parent.session_id if parent is not None else None,
        )
        self.registry.register(self.session_id, spec)
        if parent is not None:  # a cancel of the parent has a receipt for this run, too
            self.registry.keep_account(self.session_id, self.root_id)
        self._root = Observer(self.registry, self.session_id, self.root_id)

    def see(self, stage: ObservedStage) -> None:
        """The run itself is here now: its end has been decided."""
        if self._root is not None:
            self._root.see(stage)

    def end(self, how: How) -> None:
        """The run itself has ended."""
        self.registry.finish(self.session_id, self.root_id, how)

    @contextmanager
    def item(
        self,
        kind: WorkKind,
        label: str,
        *,
        name: str,
        parent: str | None = None,
        stop: Callable[[], object] = lambda: None,
        residency: str | None = None,
        noted: bool = True,
        at: ObservedStage | None = None,
    ) -> Generator[WorkItem]:
        """A piece of work that lives as long as this block; node calls get a number of their own.

        A node call has no events of its own, so its beginning and end are noted, unless somebody else does.
        Unless told otherwise (`at`) it waits for the node's answer from its beginning on.
        """
        if kind is WorkKind.NODE_CALL:
            name = f"{name}-{next(self._numbers)}"
            at = at or ObservedStage.RECEIPT_WAIT
        item = self._piece(kind, label, work_id=self.id_of(name), parent=parent or self.root_id)
        with self.residencies.acquire(residency or kind.value):
            self._register(item, ScopeHandle(stop), at=at)
            try:
                yield item
            finally:
                self.registry.finish(self.session_id, item.work_id, item.how, pids=item.pids)
                if kind is WorkKind.NODE_CALL and noted:
                    self._note(item.registered(), item.finished())

    @contextmanager
    def tool(self, use: ToolUse, *, stop: Callable[[], Awaitable[object]]) -> Generator[WorkItem]:
        """A tool call; `stop` asks the node to end it."""
        work_id = self.id_of(f"{use.stage_id}.{use.tool_call_id}")
        parent, label = self.id_of(use.stage_id), self._label_of(use)
        item = self._piece(WorkKind.TOOL, label, work_id=work_id, parent=parent)
        handle = NodeCallHandle(stop)
        with self.residencies.acquire(WorkKind.TOOL.value):
            self._register(item, handle, at=ObservedStage.DISPATCH, tool_call_id=use.tool_call_id)
            try:
                yield item
            finally:
                self.registry.finish(self.session_id, work_id, item.how, pids=item.pids)

    @contextmanager
    def invocation(self, use: ToolUse, *, plugin_id: str, token: CancelToken) -> Generator[WorkItem]:
        """A call of an MCP server's tool; a cancel trips the token."""
        work_id = self.id_of(f"{use.stage_id}.{use.tool_call_id}")
        parent, label = self.id_of(use.stage_id), self._label_of(use)
        item = self._piece(WorkKind.PLUGIN_INVOCATION, label, work_id=work_id, parent=parent)
        with self.residencies.acquire(WorkKind.PLUGIN_INVOCATION.value):
            self._register(
                item,
                InvocationHandle(token),
                at=ObservedStage.DISPATCH,
                tool_call_id=use.tool_call_id,
                plugin_id=plugin_id,
            )
            try:
                yield item
            finally:
                self.registry.finish(self.session_id, work_id, item.how, pids=item.pids)

    def _label_of(self, use: ToolUse) -> str:
        """What a call does, for people: a tool's name alone doesn't tell which command is being waited for.

        The arguments are the model's words: one short printable line of them, known secrets masked.
        """
        about = call_label(use.arguments, mask=self.registry.mask)
        return f"{use.name}: {about}" if about else use.name

    def child(self, run_id: str, *, parent: str) -> WorkItem:
        """A child run, as this run's log tells of it; it registers itself when it is driven."""
        return self._piece(WorkKind.RUN, run_id, work_id=run_id, parent=parent)

    def _piece(self, kind: WorkKind, label: str, *, work_id: str, parent: str | None) -> WorkItem:
        return WorkItem(kind, label, work_id=work_id, parent=parent, clock=self._clock)

    def cancel(self) -> None:
        """Flag the run and all below it, and ask each to stop; waits for nothing."""
        self.registry.cancel(self.session_id, self.root_id)

    def closed(self) -> tuple[ClosedItem, ...]:
        """What has ended since the cancel, with how and how fast."""
        return tuple(self.registry.closed_items(self.session_id, self.root_id))

    def _register(
        self,
        item: WorkItem,
        handle: Handle,
        *,
        at: ObservedStage | None,
        tool_call_id: str | None = None,
        plugin_id: str | None = None,
    ) -> None:
        spec = WorkSpec(
            work_id=item.work_id,
            kind=item.kind,
            label=item.label,
            handle=handle,
            tool_call_id=tool_call_id,
            plugin_id=plugin_id,
            parent_work_id=item.parent,
        )
        self.registry.register(self.session_id, spec)
        item.observed_by(Observer(self.registry, self.session_id, item.work_id), at=at)
