"""SQLite against the fake: whatever is done to both, both say the same."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from examples_kit import examples
from remit.contract import RunReleased, RunStatus
from remit.errors import RemitError
from remit.events import TERMINAL_TYPES, Artifact
from remit.storage import SqliteStore
from remit.testing._memory_store import MemoryStore
from remit.testing._store_samples import (
    attempt_completed,
    attempt_started,
    delivery_intent,
    fact,
    message,
    sample_submission,
    sample_view,
    settling,
    stage_started,
    terminal,
    work_finished,
    work_registered,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remit.events import NewEvent
    from remit.runs import RunStore, StoredRun
    from remit.storage import Epochs

RUN_IDS = st.sampled_from(["run_1", "run_2", "run_3"])
TENANTS = st.sampled_from(["local"] * 5 + ["b"])
KEYS = st.sampled_from([None] * 5 + ["k1", "k2"])
PROMPTS = st.sampled_from(["One."] * 5 + ["Two."])
HOSTS = st.integers(0, 1)
LAGS = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
"""How many generations too old a writer is."""
TEXTS = st.text(st.characters(codec=None, categories=None), max_size=8)
ATTEMPTS = st.sampled_from(["a1", "a2"])
KINDS: st.SearchStrategy[Any] = st.sampled_from(["completed", "failed", "cancelled"])
FACTS = st.one_of(
    TEXTS.map(work_registered),
    TEXTS.map(work_registered),
    TEXTS.map(work_finished),
    ATTEMPTS.map(attempt_started),
    ATTEMPTS.map(attempt_completed),
    st.sampled_from([RunStatus.PLANNING, RunStatus.WORKING]).map(lambda status: stage_started("s", status)),
    KINDS.map(settling),
    st.just(delivery_intent()),
    st.just(fact("run.released", RunReleased(reason="drain"))),
    st.builds(lambda run, kind: terminal(sample_view(run), kind), RUN_IDS, KINDS),
)
MESSAGES = st.builds(message, st.sampled_from(["plan", "work-1"]), st.integers(-1, 3), TEXTS)
ARTIFACTS = st.builds(Artifact, name=st.sampled_from(["plan", "patch"]), text=TEXTS)


class Ticks:
    """A clock that both stores read: it says the same however often it is asked."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class StoreMachine(RuleBasedStateMachine):
    """Does everything to both stores, and compares the answers; the invariants hold after each step."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Ticks()
        self.folder = tempfile.TemporaryDirectory(prefix="remit-store-")
        self.loop = asyncio.Runner()
        self.sqlite = self.loop.run(self.open(None))
        self.memory = MemoryStore(clock=self.clock, is_alive=self.sqlite.epochs.is_alive)
        self.hosts = [self.sqlite.epochs.start() for _ in range(2)]

    async def open(self, epochs: Epochs | None) -> SqliteStore:
        return await SqliteStore.open(Path(self.folder.name), clock=self.clock, epochs=epochs)

    def teardown(self) -> None:
        for host in self.hosts:
            host.close()
        self.loop.run(self.sqlite.aclose())
        self.loop.close()
        self.folder.cleanup()

    def both(self, ask: Callable[[RunStore], Awaitable[object]]) -> object:
        """Ask both, and compare: the same value, or an error of the same kind."""

        async def outcome(store: RunStore) -> object:
            try:
                return await ask(store)
            except RemitError as error:
                return type(error).__name__

        self.clock.moment += timedelta(seconds=1)
        memory = self.loop.run(outcome(self.memory))
        assert self.loop.run(outcome(self.sqlite)) == memory
        return memory

    @rule(place=HOSTS)
    def replace_a_host(self, place: int) -> None:
        """One dies, another starts."""
        self.hosts[place].abandon()
        self.hosts[place] = self.sqlite.epochs.start()

    @rule()
    def restart(self) -> None:
        """The process ends in good order and opens the file anew: nothing that counts was in memory only."""
        epochs = self.sqlite.epochs
        self.loop.run(self.sqlite.aclose())
        self.sqlite = self.loop.run(self.open(epochs))

    @rule(target=runs, run_id=RUN_IDS, tenant=TENANTS, key=KEYS, prompt=PROMPTS, place=HOSTS, note=TEXTS)
    def submit(
        self, run_id: str, tenant: str, key: str | None, prompt: str, place: int, note: str
    ) -> tuple[str, str]:
        submission = sample_submission(
            run_id,
            epoch=self.hosts[place].id,
            tenant=tenant,
            idempotency_key=key,
            prompt=prompt,
            metadata={"note": note},
            parent_run_id=None if place else "run_1",
        )
        self.both(lambda store: store.submit(submission))
        return tenant, run_id

    @rule(run=runs, place=HOSTS)
    def claim(self, run: tuple[str, str], place: int) -> None:
        tenant, run_id = run
        self.both(lambda store: store.claim(self.hosts[place].id, run_id=run_id, tenant=tenant))

    @rule(place=HOSTS)
    def claim_the_oldest(self, place: int) -> None:
        self.both(lambda store: store.claim(self.hosts[place].id))

    @rule(run=runs, place=HOSTS)
    def take_over(self, run: tuple[str, str], place: int) -> None:
        """The run's host dies, and another claims it."""
        found = self.find(run)
        for number, host in enumerate(self.hosts):
            if found is not None and found.epoch == host.id:
                self.replace_a_host(number)
        self.claim(run, place)

    @rule(
        run=runs,
        lag=LAGS,
        facts=st.lists(FACTS, min_size=1, max_size=3),
        messages=st.lists(MESSAGES, max_size=1),
        artifacts=st.lists(ARTIFACTS, max_size=1),
    )
    def append(
        self,
        run: tuple[str, str],
        lag: int,
        facts: list[NewEvent],
        messages: list[Any],
        artifacts: list[Artifact],
    ) -> None:
        tenant, run_id = run
        generation = self.owner(run) - lag
        self.both(
            lambda store: store.append(
                run_id, generation, facts, transcript=messages, artifacts=artifacts, tenant=tenant
            )
        )

    @rule(run=runs, lag=LAGS, facts=st.lists(FACTS, max_size=2), kind=KINDS)
    def finish(self, run: tuple[str, str], lag: int, facts: list[NewEvent], kind: Any) -> None:
        tenant, run_id = run
        generation = self.owner(run) - lag
        events = [*facts, terminal(sample_view(run_id), kind)]
        self.both(lambda store: store.finish(run_id, generation, events, tenant=tenant))

    def owner(self, run: tuple[str, str]) -> int:
        """The newest generation of a run, which a host of ours has claimed if it can."""
        for place in range(len(self.hosts)):
            found = self.find(run)
            if found is not None and found.generation == 0:
                self.claim(run, place)
        found = self.find(run)
        return 0 if found is None else found.generation

    def find(self, run: tuple[str, str]) -> StoredRun | None:
        tenant, run_id = run
        return self.loop.run(self.memory.find_run(run_id, tenant=tenant))

    @rule(run=runs, text=TEXTS)
    def log(self, run: tuple[str, str], text: str) -> None:
        tenant, run_id = run
        self.both(lambda store: store.log(run_id, "note", {"text": text}, tenant=tenant))

    @rule(
        tenant=TENANTS,
        statuses=st.lists(st.sampled_from([str(status) for status in RunStatus]), max_size=2),
        after=st.none() | RUN_IDS,
        limit=st.integers(1, 3),
    )
    def look_at_lists(self, tenant: str, statuses: list[str], after: str | None, limit: int) -> None:
        self.both(lambda store: store.list_runs(tenant=tenant, statuses=statuses, after=after, limit=limit))
        self.both(lambda store: store.unfinished_of_dead_epochs())

    @rule(run=runs, after=st.integers(0, 9), limit=st.integers(1, 4))
    def look_at_a_run(self, run: tuple[str, str], after: int, limit: int) -> None:
        tenant, run_id = run
        self.both(lambda store: store.find_run(run_id, tenant=tenant))
        self.both(lambda store: store.children_of(run_id, tenant=tenant))
        self.both(lambda store: store.read_events(run_id, after=after, limit=limit, tenant=tenant))
        self.both(lambda store: store.read_attempts(run_id, tenant=tenant))
        self.both(lambda store: store.read_transcript(run_id, tenant=tenant))
        self.both(lambda store: store.read_artifact(run_id, "plan", tenant=tenant))
        self.both(lambda store: store.list_artifacts(run_id, tenant=tenant))
        self.both(lambda store: store.read_history(run_id, tenant=tenant))

    @invariant()
    def rows_are_what_the_logs_say(self) -> None:
        """Row == fold(log), at any time."""
        assert self.loop.run(self.sqlite.find_drift()) == ()

    @invariant()
    def logs_are_whole(self) -> None:
        """Numbers without gaps; the admission first; one decision, intent, terminal at most, that last."""
        for tenant in ("local", "b"):
            for run_id in ("run_1", "run_2", "run_3"):
                events = self.loop.run(self.sqlite.read_events(run_id, tenant=tenant))
                types = [event.type for event in events]
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                assert not events or types[0] == "run.queued"
                for once in ("run.queued", "run.settling", "delivery.intent"):
                    assert types.count(once) <= 1
                assert not any(type_ in TERMINAL_TYPES for type_ in types[:-1])


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.__doc__ = "Promise 1, R61, R63: SQLite and the fake agree after any sequence of calls."
TestStoreMachine.settings = examples(60, stateful_step_count=40)
