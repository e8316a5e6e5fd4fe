"""What a stage has to store, gathered so that each boundary costs one durable step."""

from __future__ import annotations

from remit.errors import RemitError
from remit.events import NewEvent, TranscriptEntry
from remit.models import Message, message_role, message_to_json
from remit.stages._ports import Journal


class StageLog:
    """Facts and messages of one stage that wait for the next durable step.

    A fact may wait only while nothing outside hangs on it: what was asked for is stored before it
    begins, what came of it together with whatever is asked for next. A host that dies in between
    finds the question without its answer, and asks the node or counts the attempt as interrupted.
    """

    def __init__(self, journal: Journal, *, stage_id: str) -> None:
        self._journal = journal
        self._stage_id = stage_id
        self._position = 0
        self._events: list[NewEvent] = []
        self._transcript: list[TranscriptEntry] = []

    def add(self, *events: NewEvent) -> None:
        """Facts for the next step."""
        self._events.extend(events)

    def say(self, *messages: Message) -> None:
        """Messages of the conversation for the next step."""
        for message in messages:
            self._transcript.append(
                TranscriptEntry(
                    stage_id=self._stage_id,
                    position=self._position,
                    role=message_role(message),
                    body=message_to_json(message),
                )
            )
            self._position += 1

    @property
    def waiting(self) -> bool:
        """Whether anything isn't stored yet."""
        return bool(self._events or self._transcript)

    async def flush(self, *events: NewEvent) -> None:
        """Store all that waits, and `events` after it, in one step; nothing to store costs nothing.

        Raises:
            StorageError, OwnershipError: The journal's; nothing of it was stored, and it waits on.

        Cancellation: the journal's; what it was given is stored all the same.
        """
        self.add(*events)
        if not self.waiting:
            return
        stored, said = self._events, self._transcript
        self._events, self._transcript = [], []
        try:
            await self._journal.append(*stored, transcript=said)
        except Exception:
            self._events[:0], self._transcript[:0] = stored, said
            raise

    def hand_over(self, *events: NewEvent) -> None:
        """The stage is over: all that waits, and `events` after it, is stored with what the run does next."""
        self.add(*events)
        stored, said = self._events, self._transcript
        self._events, self._transcript = [], []
        self._journal.hold(*stored, transcript=said)

    async def flush_at_failure(self) -> None:
        """Store what there is while something else is going wrong, whose reason wins over a failure here."""
        try:
            await self.flush()
        except RemitError:
            # The owner of the run learns the same from its own next write.
            return
