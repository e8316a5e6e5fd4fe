"""The items of all sessions, who hangs below whom, and what a cancel has flagged. No handle is fired here.

What holds at any time: everything below a registered, flagged item is flagged; an item counts in every
subtree that its ancestors counted in when it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remit.contract import How
from remit.work._entry import Entry, Session
from remit.work._subtree import Subtree

Key = tuple[str, str]


class Tree:
    """The structure behind the registry."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.count = 0

    def find(self, session_id: str, work_id: str) -> Entry | None:
        """The current registration of an id."""
        session = self.sessions.get(session_id)
        return None if session is None else session.entries.get(work_id)

    def children_of(self, entry: Entry) -> Iterator[Entry]:
        """What hangs directly below an item."""
        session = self.sessions.get(entry.session_id)
        kids = None if session is None else session.children.get(entry.work_id)
        return iter(kids or ())

    # ---- coming

    def insert(self, entry: Entry) -> Entry | None:
        """Take an item in, link it, let it inherit; returns the registration that it replaces.

        After this `entry.cancelled` says whether it was born cancelled; what already hung below it is then
        flagged by the caller (`flag_below`).
        """
        session = self.sessions.get(entry.session_id)
        if session is None:
            session = self.sessions[entry.session_id] = Session()
        old = session.entries.get(entry.work_id)
        session.entries[entry.work_id] = entry
        if old is None:
            self.count += 1
            session.ordered = None
        else:
            self._succeed(old, entry)
        parent = None if entry.parent is None else self._link(entry, entry.parent)
        if parent is not None:
            if parent.cancelled and not entry.cancelled:
                entry.cancelled, entry.cancelled_at = True, parent.cancelled_at
            for subtree in parent.subtrees:
                self.count_in(subtree, entry)
        return old

    def _succeed(self, old: Entry, new: Entry) -> None:
        """The new registration takes the old one's flag and its place in every wait; not its parent."""
        new.cancelled, new.cancelled_at = old.cancelled, old.cancelled_at
        new.subtrees = old.subtrees
        for subtree in old.subtrees:
            subtree.replace(old, new)
        self._unlink(old)
        if old.binding is not None:
            old.binding.ended = True

    def _link(self, entry: Entry, parent: Key) -> Entry | None:
        session = self.sessions.get(parent[0])
        if session is None:
            session = self.sessions[parent[0]] = Session()
        kids = session.children.get(parent[1])
        if kids is None:
            kids = session.children[parent[1]] = {}
        kids[entry] = None
        return session.entries.get(parent[1])

    def _unlink(self, entry: Entry) -> None:
        if entry.parent is None:
            return
        session = self.sessions.get(entry.parent[0])
        kids = None if session is None else session.children.get(entry.parent[1])
        if session is None or kids is None:
            return
        kids.pop(entry, None)
        if not kids:
            del session.children[entry.parent[1]]
            self._forget_if_empty(entry.parent[0], session)

    # ---- cancelling

    def flag(self, top: Entry, *, now: float) -> list[Entry]:
        """Flag an item and all below it; returns what is newly flagged, the item first.

        What is flagged already is skipped together with its subtree.
        """
        flagged: list[Entry] = []
        stack = [top]
        sessions = self.sessions
        while stack:
            entry = stack.pop()
            if entry.cancelled:
                continue
            entry.cancelled = True
            entry.cancelled_at = now
            flagged.append(entry)
            kids = sessions[entry.session_id].children.get(entry.work_id)
            if kids:
                stack.extend(kids)
        return flagged

    def flag_below(self, entry: Entry, *, now: float) -> list[Entry]:
        """Flag all that hangs below an item which is flagged itself."""
        return [newly for kid in tuple(self.children_of(entry)) for newly in self.flag(kid, now=now)]

    # ---- waiting

    def subtree_of(self, top: Entry) -> Subtree:
        """The wait for an item and all below it, made when it is first asked for."""
        known = self.sessions[top.session_id].subtrees
        subtree = known.get(top.work_id)
        if subtree is None or subtree.top is not top:
            subtree = known[top.work_id] = Subtree(top)
            self.count_in(subtree, top)
        return subtree

    def count_in(self, subtree: Subtree, top: Entry) -> None:
        """Count an item and all below it into a subtree."""
        stack = [top]
        sessions = self.sessions
        while stack:
            entry = stack.pop()
            if not subtree.add(entry):
                continue
            entry.subtrees = (*entry.subtrees, subtree) if entry.subtrees else subtree.alone()
            kids = sessions[entry.session_id].children.get(entry.work_id)
            if kids:
                stack.extend(kids)

    # ---- going

    def remove(self, entry: Entry, *, how: How, pids: Sequence[int], now: float) -> None:
        """Let an item go; what hangs below it then hangs below its parent."""
        session = self.sessions[entry.session_id]
        del session.entries[entry.work_id]
        session.ordered = None
        self.count -= 1
        kids = session.children.pop(entry.work_id, None)
        self._unlink(entry)
        if kids is not None:
            self._hand_up(kids, entry.parent)
        if entry.binding is not None:
            entry.binding.ended = True
        for subtree in entry.subtrees:
            subtree.remove(entry, how=how, pids=pids, now=now)
        entry.subtrees = ()  # one of them may name the item as its top: a ring
        self._forget_if_empty(entry.session_id, session)

    def _hand_up(self, kids: dict[Entry, None], parent: Key | None) -> None:
        for kid in kids:
            # A loop of parents may end here: nothing hangs below itself.
            kid.parent = None if parent == (kid.session_id, kid.work_id) else parent
            if kid.parent is not None:
                self._link(kid, kid.parent)

    def _forget_if_empty(self, session_id: str, session: Session) -> None:
        # Not one that was made anew meanwhile, for what was handed up to a parent that isn't there yet.
        if not session.entries and not session.children and self.sessions.get(session_id) is session:
            del self.sessions[session_id]
