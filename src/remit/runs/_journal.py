"""A run's own pen: every fact goes through here, under the run's generation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from remit.contract import RunView
from remit.errors import StorageFull
from remit.events import Artifact, Ephemeral, Event, NewEvent, TranscriptEntry
from remit.runs._feed import Feed
from remit.runs._ports import RunStore, StoredRun
from remit.runs._projection import fold_payload


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
        """The run's row after the last stored fact."""
        self._noted: list[NewEvent] = []

    async def append(
        self,
        *events: NewEvent,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
    ) -> None:
        """Store facts; returns once they are durable. One that doesn't say whose work it is of is placed."""
        noted, self._noted = self._noted, []
        events = tuple(self._placed(event) for event in (*noted, *events))
        try:
            await self._store.append(
                self.view.id,
                self._generation,
                events,
                transcript=transcript,
                artifacts=artifacts,
                tenant=self._tenant,
            )
        except asyncio.CancelledError as cancel:
            # The store raises a cancel after it has stored; a cause says that it couldn't.
            if cancel.__cause__ is None:
                self._fold(events)
            else:
                self._noted[:0] = noted
            raise
        except Exception:
            self._noted[:0] = noted
            raise
        self._fold(events)

    def note(self, *events: NewEvent) -> None:
        """Facts on which nothing outside hangs: they are stored, in this order, before the next ones."""
        self._noted.extend(events)

    async def finish(self, *events: NewEvent, artifacts: Sequence[Artifact] = ()) -> None:
        """Store the last facts, the terminal last; on a full disk without the artifacts."""
        events = tuple(self._placed(event) for event in (*self._noted, *events))
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
