"""Proof that a workflow's node runs in its parent's workspace, for exactly as long as it is permitted to.

A permit names one execution to the last detail. While it is held and bound to the item that executes, the
registry can prove that execution and no other; releasing the permit, or dropping it, ends the proof at once.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from remit.contract import WorkKind
from remit.work._entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExecutionLink:
    """One execution of one workflow node, to the last detail."""

    session_id: str
    """Session of the work item that executes."""
    parent_session_id: str
    """Session of the run whose workspace is shared."""
    run_id: str
    node_id: str
    activation_id: str | None
    """None proves nothing."""
    attempt: int
    workspace_snapshot: str | None
    """None proves nothing."""
    mode: Literal["shared_sequential", "isolated"] = "shared_sequential"

    @property
    def dispatch_id(self) -> str:
        """The work id that this execution has, and no other."""
        return f"{self.run_id}:{self.node_id}:{self.activation_id}:{self.attempt}"

    @property
    def parent_work_id(self) -> str:
        """The work id that its item hangs below."""
        return f"workflow:{self.run_id}"


class SharedExecutionPermit:
    """Leave to execute in a shared workspace, until it is released or dropped."""

    __slots__ = ("__weakref__", "_link")

    def __init__(self, link: SharedExecutionLink) -> None:
        self._link: SharedExecutionLink | None = link

    @property
    def link(self) -> SharedExecutionLink | None:
        """What it permits; None once it was released."""
        return self._link

    def release(self) -> None:
        """End the leave, and with it every proof."""
        self._link = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SharedExecutionObservation:
    """May be kept: it has provenance only while the permit is held and the item is registered."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    @property
    def provenance(self) -> SharedExecutionLink | None:
        """The execution that is proved right now, or None."""
        return self._binding.proved()


class Binding:
    """A permit bound to one registration of an item. Holds neither alive."""

    __slots__ = ("_entry", "_permit", "ended")

    def __init__(self, entry: Entry, permit: SharedExecutionPermit) -> None:
        self._entry = weakref.ref(entry)
        self._permit = weakref.ref(permit)
        self.ended = False
        """Set when the item ends, is registered again, or gets another permit."""

    def proved(self) -> SharedExecutionLink | None:
        """The execution that this binding proves now, or None."""
        entry, permit = self._entry(), self._permit()
        link = permit.link if permit is not None else None
        if self.ended or entry is None or link is None:
            return None
        if link.activation_id is None or link.workspace_snapshot is None or link.mode != "shared_sequential":
            return None
        exact = (
            entry.spec.kind is WorkKind.WORKFLOW_NODE
            and entry.session_id == link.session_id
            and entry.work_id == link.dispatch_id
            and entry.spec.parent_work_id == link.parent_work_id
        )
        return link if exact else None
