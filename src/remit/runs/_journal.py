"""A run's own pen: every fact goes through here, under the run's generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from remit.contract import RunView
from remit.errors import StorageFull
from remit.events import Artifact, Ephemeral, Event, NewEvent, TranscriptEntry, closing_among
from remit.runs._feed import Feed
from remit.runs._ports import RunStore, StoredRun
from remit.runs._projection import fold_payload

HELD_AT_MOST_S: Final = 0.2
"""How long a fact may wait for the next one."""


class RunJournal:
    """Writes the log of one run, and knows the row that it folds to.

    Raises from every append: what the store raises; `StaleGeneration` means that somebody else owns the
    run and the caller must stop without writing more.
    """

    def __init__(self, store: RunStore, stored: StoredRun, feed: Feed) -> None:
        self._store = store
        self._generation = stored.generation
        self._tenant = stored.tenant
        self._feed = feed
        self.view = stored.view
        """The run's row after the last fact, also one that is held back."""
        self.on_overdue: Callable[[], object] = lambda: None
        """Called when something has been held back for long; who sets it sees that it is flushed."""
        self._held = _Held()
        self._timer: asyncio.TimerHandle | None = None

    async def append(
        self,
        *events: NewEvent,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
    ) -> None:
        """Store facts; returns once they are durable. One that doesn't say whose work it is of is placed."""
        held = self._take_held()
        try:
            await self._store.append(
                self.view.id,
                self._generation,
                tuple(self._placed(event) for event in (*held.events, *events)),
                transcript=(*held.transcript, *transcript),
                artifacts=(*held.artifacts, *artifacts),
                tenant=self._tenant,
            )
        except asyncio.CancelledError as cancel:
            # The store raises a cancel after it has stored; a cause says that it couldn't.
            if cancel.__cause__ is None:
                self._fold(events)
            else:
                self._held.put_back(held)
            raise
        except Exception:
            self._held.put_back(held)
            raise
        self._fold(events)

    def hold(
        self,
        *events: NewEvent,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
    ) -> None:
        """Facts on which nothing outside hangs yet: stored, in this order, with the next ones.

        What must be on record before something begins is flushed by who begins it. All else waits no
        longer than a viewer would notice: if nothing follows by then, it is overdue.
        """
        if self.view.status.ended:
            return  # what is tidied up after the terminal isn't part of the log
        self._held.add(events, transcript, artifacts)
        self._fold(events)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HELD_AT_MOST_S, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        self.on_overdue()

    def _take_held(self) -> _Held:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, _Held()
        return held

    async def flush(self) -> None:
        """Store what is held back; nothing held costs nothing."""
        if self._held.waiting:
            await self.append()

    def give_up_all_but_ends(self) -> bool:
        """On a full disk: forget what is held back and doesn't only end something; False: there is none."""
        return self._held.keep_closing()

    async def finish(self, *events: NewEvent, artifacts: Sequence[Artifact] = ()) -> None:
        """Store the last facts, the terminal last; on a full disk without the artifacts."""
        events = tuple(self._placed(event) for event in (*self._take_held().events, *events))
        try:
            stored = await self._finish(events, artifacts)
        except StorageFull:
            if not artifacts:
                raise
            stored = await self._finish(events, ())
        self.view = RunView.model_validate(stored[-1].data)
        self._feed.close(self.view.id, tenant=self._tenant)

    async def _finish(self, events: Sequence[NewEvent], artifacts: Sequence[Artifact]) -> tuple[Event, ...]:
        return await self._store.finish(
            self.view.id, self._generation, events, artifacts=artifacts, tenant=self._tenant
        )

    def _placed(self, event: NewEvent) -> NewEvent:
        """The fact with the work that it is of, the stage's that it names or the run's, and where that hangs.

        What hangs lower than a stage says so itself.
        """
        root, stage_id = self.view.id, getattr(event.payload, "stage_id", None)
        work_id = event.work_id or (root if stage_id is None else f"{root}.{stage_id}")
        parent = event.parent_work_id or (None if work_id == root else root)
        return replace(event, work_id=work_id, parent_work_id=parent)

    def emit(self, ephemeral: Ephemeral) -> None:
        """Show something to viewers; never waits."""
        self._feed.publish(self.view, ephemeral, tenant=self._tenant)

    def _fold(self, events: Sequence[NewEvent]) -> None:
        for event in events:
            self.view = fold_payload(self.view, event.payload)


@dataclass(slots=True)
class _Held:
    """What is stored with the next facts."""

    events: list[NewEvent] = field(default_factory=list[NewEvent])
    transcript: list[TranscriptEntry] = field(default_factory=list[TranscriptEntry])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])

    @property
    def waiting(self) -> bool:
        """Whether there is anything."""
        return bool(self.events or self.transcript or self.artifacts)

    def add(
        self,
        events: Sequence[NewEvent],
        transcript: Sequence[TranscriptEntry],
        artifacts: Sequence[Artifact],
    ) -> None:
        """More of it."""
        self.events.extend(events)
        self.transcript.extend(transcript)
        self.artifacts.extend(artifacts)

    def put_back(self, earlier: _Held) -> None:
        """What couldn't be stored is held again, before what came meanwhile."""
        self.events[:0] = earlier.events
        self.transcript[:0] = earlier.transcript
        self.artifacts[:0] = earlier.artifacts

    def keep_closing(self) -> bool:
        """Give up all that a full disk doesn't take; False: there is no such thing."""
        kept = closing_among(self.events)
        smaller = len(kept) < len(self.events) or bool(self.transcript or self.artifacts)
        self.events, self.transcript, self.artifacts = kept, [], []
        return smaller
