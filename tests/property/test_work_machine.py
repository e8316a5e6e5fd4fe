"""The work registry against a model that has no index, no cache and no counter."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remit.contract import WorkKind
from remit.work import (
    CancelToken,
    ObservationToken,
    ObservedStage,
    ServiceCallHandle,
    SharedExecutionLink,
    SharedExecutionObservation,
    SharedExecutionPermit,
    WorkSpec,
)
from work_kit import Kit

SESSIONS = st.sampled_from(["s1", "s2"])
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
Key = tuple[str, str]


class Plain:
    """One registration, as a model would write it down on paper."""

    def __init__(self, parent: Key | None, *, cancelled: bool, owner: int, token: CancelToken | None) -> None:
        self.parent = parent
        self.token = token
        self.cancelled = cancelled
        self.owner = owner
        self.revision = 0
        self.stage: ObservedStage | None = None
        self.is_node = False
        self.executes = False
        self.bound: Held | None = None


def _link(session: str, attempt: int) -> SharedExecutionLink:
    return SharedExecutionLink(
        session_id=session,
        parent_session_id="p",
        run_id="r",
        node_id="n",
        activation_id="x",
        attempt=attempt,
        workspace_snapshot="w",
    )


class NaiveRegistry:
    """Everything is found by looking at everything."""

    def __init__(self) -> None:
        self.items: dict[Key, Plain] = {}
        self.owners = 0
        self.fired: list[Key] = []

    def below(self, top: Key) -> set[Key]:
        found: set[Key] = set()
        grown = True
        while grown:
            grown = False
            for key, item in self.items.items():
                if key not in found and key != top and (item.parent == top or item.parent in found):
                    found.add(key)
                    grown = True
        return found

    def register(self, key: Key, parent: Key | None, token: CancelToken | None = None) -> bool:
        old = self.items.get(key)
        self.owners += 1
        above = self.items.get(parent) if parent is not None and parent != key else None
        born = (old is not None and old.cancelled) or (above is not None and above.cancelled)
        self.items[key] = Plain(parent, cancelled=born, owner=self.owners, token=token)
        if born:
            newly = {below for below in self.below(key) if not self.items[below].cancelled}
            for found in {key} | newly:
                self.items[found].cancelled = True
                if self.items[found].token is None:
                    self.fired.append(found)
        return old is None

    def cancel(self, key: Key) -> set[Key]:
        item = self.items.get(key)
        if item is None or item.cancelled:
            return set()
        flagged = {found for found in {key} | self.below(key) if not self.items[found].cancelled}
        for found in flagged:
            self.items[found].cancelled = True
        self.fired.extend(flagged)
        return flagged

    def remove(self, key: Key) -> bool:
        item = self.items.pop(key, None)
        if item is None:
            return False
        for other_key, other in self.items.items():
            if other.parent == key:
                other.parent = None if item.parent in (key, other_key) else item.parent
        return True


class Held:
    """A permit, what it permits, and the registration that it was bound to, as a model would note it."""

    def __init__(self, permit: SharedExecutionPermit, link: SharedExecutionLink, key: Key) -> None:
        self.permit = permit
        self.link = link
        self.key = key
        self.released = False


class Machine(RuleBasedStateMachine):
    """B1-B73, as far as they speak of state.

    Registering again, registering under what is cancelled, other handles, stale tokens, loops of parents,
    links across sessions, permits that come and go, and every kind of removal, in any order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kit = Kit()
        self.model = NaiveRegistry()
        self.tokens: list[tuple[ObservationToken, Key, int, int]] = []
        self.receipts: dict[Key, tuple[set[Key], list[Key]]] = {}
        self.permits: list[Held] = []
        self.kept: list[tuple[SharedExecutionObservation, Held, int]] = []

    # ---- registering and cancelling

    @rule(session=SESSIONS, work_id=IDS, parent=st.none() | IDS, other=st.booleans())
    def register(self, session: str, work_id: str, parent: str | None, other: bool) -> None:
        parent_session = ("s2" if session == "s1" else "s1") if other else session
        key = (session, work_id)
        parent_key = None if parent is None else (parent_session, parent)
        was = self.model.items.get(key)
        if parent_key == key:
            parent_key = None
            parent = None
        answer = self.kit.add(
            work_id, session=session, parent=parent, parent_session=parent_session if other else None
        )
        assert answer == (True, self.model.register(key, parent_key))
        assert (was is None) == answer[1]
        self._join_receipts(key)

    @rule(session=SESSIONS, work_id=IDS, parent=IDS)
    def register_service_call(self, session: str, work_id: str, parent: str) -> None:
        key, parent_key = (session, work_id), (session, parent)
        if parent_key == key:
            return
        token = CancelToken()
        spec = WorkSpec(
            work_id=work_id,
            kind=WorkKind.PLUGIN_INVOCATION,
            label="",
            handle=ServiceCallHandle(token),
            parent_work_id=parent,
        )
        self.kit.registry.register(session, spec)
        self.model.register(key, parent_key, token)
        assert token.tripped == self.model.items[key].cancelled
        self._join_receipts(key)

    @rule(session=SESSIONS, work_id=IDS)
    def cancel(self, session: str, work_id: str) -> None:
        key = (session, work_id)
        flagged = self.kit.registry.cancel(session, work_id)
        expected = self.model.cancel(key)
        assert len(flagged) == len(set(flagged))
        assert set(flagged) == expected
        if flagged:
            assert flagged[0] == key
            self.receipts[key] = ({key} | self.model.below(key), [])

    @rule(work_id=IDS)
    def cancel_everywhere(self, work_id: str) -> None:
        flagged = self.kit.registry.cancel_everywhere(work_id)
        expected: set[Key] = set()
        for session in ("s1", "s2"):
            key = (session, work_id)
            newly = self.model.cancel(key)
            expected |= newly
            if newly:
                self.receipts[key] = ({key} | self.model.below(key), [])
        assert set(flagged) == expected

    @rule(session=SESSIONS, work_id=IDS, service=st.booleans())
    def replace_cancellation(self, session: str, work_id: str, service: bool) -> None:
        token = CancelToken()
        handle = ServiceCallHandle(token) if service else self.kit.fired.handle(work_id)
        item = self.model.items.get((session, work_id))
        assert self.kit.registry.replace_cancellation(session, work_id, handle) == (item is not None)
        if item is not None:
            item.token = token if service else None
            if item.cancelled and not service:
                self.model.fired.append((session, work_id))
            assert token.tripped == (service and item.cancelled)

    # ---- shared execution

    @rule(session=SESSIONS, attempt=st.integers(1, 2), node=st.booleans(), right_parent=st.booleans())
    def register_node(self, session: str, attempt: int, node: bool, right_parent: bool) -> None:
        link = _link(session, attempt)
        key = (session, link.dispatch_id)
        parent = link.parent_work_id if right_parent else "a"
        kind = WorkKind.WORKFLOW_NODE if node else WorkKind.TOOL
        self.kit.add(link.dispatch_id, session=session, kind=kind, parent=parent)
        self.model.register(key, (session, parent))
        self.model.items[key].executes = node and right_parent
        self.model.items[key].is_node = node
        self._join_receipts(key)

    @rule(session=SESSIONS, other=SESSIONS, attempt=st.integers(1, 2), of_attempt=st.integers(1, 2))
    def bind(self, session: str, other: str, attempt: int, of_attempt: int) -> None:
        link = _link(session, of_attempt)
        key = (other, _link(other, attempt).dispatch_id)
        held = Held(SharedExecutionPermit(link), link, key)
        item = self.model.items.get(key)
        bound = self.kit.registry.bind_shared_execution(other, key[1], held.permit)
        assert bound == (item is not None and item.is_node and session == other)
        if bound and item is not None:
            self.permits.append(held)
            item.bound = held
            seen = self.kit.registry.find_shared_execution(*key)
            assert seen is not None
            self.kept.append((seen, held, item.owner))

    @precondition(lambda self: self.permits)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.permits))
        held.permit.release()
        held.released = True

    @invariant()
    def proofs_agree(self) -> None:
        for session in ("s1", "s2"):
            shown: list[SharedExecutionLink] = []
            for attempt in (1, 2):
                link = _link(session, attempt)
                item = self.model.items.get((session, link.dispatch_id))
                held = None if item is None else item.bound
                proved = held is not None and self._is_proved(held, item)
                answer = self.kit.registry.proves_shared_execution(session, link.dispatch_id, link)
                assert answer == proved
                shown += [link] if proved else []
            assert self.kit.registry.shared_executions(session, "r") == tuple(shown)
        for seen, held, owner in self.kept:
            item = self.model.items.get(held.key)
            is_current = item is not None and item.owner == owner and item.bound is held
            assert seen.provenance == (held.link if is_current and self._is_proved(held, item) else None)

    def _is_proved(self, held: Held, item: Plain | None) -> bool:
        exact = held.key == (held.link.session_id, held.link.dispatch_id)
        return item is not None and item.executes and exact and not held.released

    # ---- removing

    @rule(session=SESSIONS, work_id=IDS, take=st.booleans())
    def remove(self, session: str, work_id: str, take: bool) -> None:
        key = (session, work_id)
        if take:
            spec = self.kit.registry.take(session, work_id)
            assert (spec is not None) == (key in self.model.items)
        else:
            assert self.kit.registry.finish(session, work_id, "term") == (key in self.model.items)
        self._leave_receipts(key)
        self.model.remove(key)

    # ---- observing

    @rule(session=SESSIONS, work_id=IDS)
    def capture(self, session: str, work_id: str) -> None:
        key = (session, work_id)
        token = self.kit.registry.observation_token(session, work_id)
        item = self.model.items.get(key)
        assert (token is None) == (item is None)
        if token is not None and item is not None:
            self.tokens.append((token, key, item.owner, item.revision))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), stage=st.sampled_from(ObservedStage))
    def observe(self, data: st.DataObject, stage: ObservedStage) -> None:
        token, key, owner, revision = data.draw(st.sampled_from(self.tokens))
        item = self.model.items.get(key)
        fresh = self.kit.registry.observe(token, stage)
        current = item is not None and item.owner == owner and item.revision == revision
        assert (fresh is not None) == current
        if fresh is not None and item is not None:
            item.stage = stage
            item.revision += 1
            self.tokens.append((fresh, key, owner, item.revision))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def take_observed(self, data: st.DataObject) -> None:
        token, key, owner, _ = data.draw(st.sampled_from(self.tokens))
        item = self.model.items.get(key)
        spec = self.kit.registry.take_observed(token)
        assert (spec is not None) == (item is not None and item.owner == owner)
        if spec is not None:
            assert spec.work_id == key[1]
            self._leave_receipts(key)
            self.model.remove(key)

    @rule()
    def fire_all(self) -> None:
        assert sorted(self.kit.cleanups.launched()) == sorted(self.model.fired)
        self.model.fired.clear()
        asyncio.run(self.kit.cleanups.run_all())

    # ---- receipts: what once belonged to a cancelled subtree does so until it ends

    def _join_receipts(self, key: Key) -> None:
        for members, _ in self.receipts.values():
            if self.model.items[key].parent in members:
                members |= {key} | self.model.below(key)

    def _leave_receipts(self, key: Key) -> None:
        item = self.model.items.get(key)
        self.receipts.pop(key, None)
        for members, ended in self.receipts.values():
            if key in members:
                members.discard(key)
                if item is not None and item.cancelled:
                    ended.append(key)

    # ---- what holds at any time

    @invariant()
    def lists_agree(self) -> None:
        shown = {(session, item.work_id): item for session, item in self.kit.registry.active_all()}
        assert list(shown) == sorted(self.model.items)
        for key, item in self.model.items.items():
            assert (shown[key].status == "cancelling") == item.cancelled
            seen = shown[key].observation
            assert (None if seen is None else seen.stage) == item.stage
        assert self.kit.registry.active_count() == len(self.model.items)

    @invariant()
    def pages_agree(self) -> None:
        for session in ("s1", "s2"):
            after: str | None = None
            read: list[str] = []
            while True:
                page = self.kit.registry.observation_page(session, after=after, limit=2)
                read += [entry.work_id for entry in page.entries]
                after = page.next_after
                if after is None:
                    break
            assert read == sorted(work_id for found, work_id in self.model.items if found == session)
            assert tuple(read) == self.kit.registry.active_ids_for_session(session)

    @invariant()
    def nothing_below_a_flag_is_unflagged(self) -> None:
        for key, item in self.model.items.items():
            if item.cancelled:
                assert all(self.model.items[below].cancelled for below in self.model.below(key))

    @invariant()
    def receipts_agree(self) -> None:
        for (session, work_id), (members, ended) in self.receipts.items():
            if (session, work_id) not in self.model.items:
                continue
            found = self.kit.registry.open_items(session, work_id)
            assert {(item.session_id, item.work_id) for item in found} == members
            told = [
                (item.session_id, item.work_id) for item in self.kit.registry.closed_items(session, work_id)
            ]
            assert told == ended

    def teardown(self) -> None:
        for session, work_id in sorted(self.model.items):
            assert self.kit.registry.finish(session, work_id)
        assert self.kit.registry._tree.sessions == {}


TestWorkMachine = Machine.TestCase
TestWorkMachine.settings = settings(stateful_step_count=40)
