"""What an observer reads of one reply, whatever the dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from remit.contract import AttemptUsage


class ChunkShapeError(ValueError):
    """What came isn't what the dialect allows."""


@dataclass(slots=True, kw_only=True)
class WireReading:
    """What was read."""

    done: bool = False
    """The dialect's last record was seen."""
    finish_word: str | None = None
    """The provider's word for why it stopped."""
    usage: AttemptUsage | None = None
    error: Any = None
    """An error object in the stream."""
    body_id: str | None = None
    has_text: bool = False
    flags: list[str] = field(default_factory=list[str])
    fault: str | None = None
    """Why the stream can't be understood."""
    fault_is_final: bool = False
    """Asking again won't help: whatever answers there doesn't speak this dialect."""
    unfinished_record: bool = False

    @property
    def complete(self) -> bool:
        """Whether what came is a whole reply: the end was seen, and nothing speaks against it."""
        return self.fault is None and self.error is None and self.done

    def flag(self, word: str) -> None:
        """Note an oddity once."""
        if word not in self.flags:
            self.flags.append(word)


class WireObserver(Protocol):
    """Reads the bytes of one reply, and says what an SDK is to see of them."""

    @property
    def reading(self) -> WireReading:
        """What was read so far."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply.

        Raises:
            ChunkShapeError: The reply can't be understood; `reading.fault` says why.
        """
        ...

    def feed_whole(self, body: bytes) -> bytes:
        """The body of a reply that isn't streamed; raises as `feed` does."""
        ...

    def finish(self) -> bytes:
        """The end of the stream."""
        ...

    def note_tail(self, data: bytes) -> None:
        """Bytes after the end mark."""
        ...
