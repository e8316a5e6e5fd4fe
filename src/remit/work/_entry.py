"""The registry's own record of an item, and of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from remit.work._items import ObservedStage, WorkSpec

if TYPE_CHECKING:
    from remit.work._permits import Binding
    from remit.work._subtree import Subtree


class Entry:
    """One registration. Registering the id again makes a new one, which fences the old one's tokens."""

    __slots__ = (
        "__weakref__",
        "binding",
        "cancelled",
        "cancelled_at",
        "handle",
        "parent",
        "revision",
        "session_id",
        "spec",
        "stage",
        "stage_at",
        "subtrees",
        "work_id",
    )

    def __init__(self, session_id: str, spec: WorkSpec) -> None:
        self.session_id = session_id
        self.work_id = spec.work_id
        self.spec = spec
        self.handle = spec.handle
        self.cancelled = False
        self.cancelled_at = 0.0
        self.stage: ObservedStage | None = None
        self.stage_at = 0.0
        self.revision = 0
        self.binding: Binding | None = None
        self.subtrees: tuple[Subtree, ...] = ()
        self.parent = _parent_key(session_id, spec)


def _parent_key(session_id: str, spec: WorkSpec) -> tuple[str, str] | None:
    """Where an item hangs; nothing hangs below itself."""
    if spec.parent_work_id is None:
        return None
    key = (spec.parent_session_id or session_id, spec.parent_work_id)
    return None if key == (session_id, spec.work_id) else key


class Session:
    """The items of one session, and whatever names one of its ids as parent."""

    __slots__ = ("children", "entries", "ordered", "subtrees")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.children: dict[str, dict[Entry, None]] = {}
        """Parent's work id -> items that hang there, also when that parent isn't registered (yet)."""
        self.ordered: list[str] | None = None
        """The ids in order; None: must be sorted anew."""
        self.subtrees: dict[str, Subtree] = {}
        """Those that somebody cancelled or waits for, by the id of their top."""

    def ids(self) -> list[str]:
        """The ids in order. Sorted when asked for: lists are read far more seldom than items come and go."""
        if self.ordered is None:
            self.ordered = sorted(self.entries)
        return self.ordered


class ObservationToken:
    """The right to move one registration of an item on from one observed stage. Its content can't be read.

    It is neither authority to run anything nor durable: it says where work was seen, in this process.
    """

    __slots__ = ("__entry", "__revision")

    def __init__(self, entry: Entry, revision: int) -> None:
        # Weak: a token that somebody keeps must not keep the item's guard.
        self.__entry = ref(entry)
        self.__revision = revision

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObservationToken)
            and self.__entry is other.__entry
            and self.__revision == other.__revision
        )

    def __hash__(self) -> int:
        return hash((id(self.__entry), self.__revision))

    def __repr__(self) -> str:
        return "ObservationToken()"

    def unseal(self) -> tuple[Entry | None, int]:
        """For the registry alone: the registration, if it still exists, and its revision."""
        return self.__entry(), self.__revision
