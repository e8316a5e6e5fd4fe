"""Which streamed piece belongs to which tool call.

Chat Completions tells calls apart by `index`. Some servers give every parallel call the index 0, or
none; some give calls no id, or the same one twice; some repeat id and name in each piece, or the whole
call at the end. Clients that go by the index alone then melt two calls into one (R26). Here each piece
is given the index and id of the call that it belongs to, before anybody else reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remit.models._reading import ChunkShapeError
from remit.models._wire import is_object


@dataclass(slots=True)
class CallSlot:
    """One tool call as it comes."""

    index: int
    call_id: str
    raw_id: str | None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    _whole_at: int = -1

    @property
    def arguments(self) -> str:
        """The argument text so far."""
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Whether its arguments are a JSON value as they stand."""
        if self._whole_at != len(self.pieces):
            try:
                json.loads(self.arguments)
            except (ValueError, RecursionError):
                return False
            self._whole_at = len(self.pieces)
        return True


class CallSlots:
    """The tool calls of one reply.

    Args:
        used_ids: Ids that the conversation already has; a call gets another one.
        new_id: Makes an id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        self._used = set(used_ids)
        self._new_id = new_id
        self._by_index: dict[int, CallSlot] = {}
        self._by_raw_id: dict[str, CallSlot] = {}
        self.slots: list[CallSlot] = []

    def sort(self, pieces: list[Any]) -> list[dict[str, Any]]:
        """The pieces of one chunk, each with the index and id of its call; repetitions are left out.

        Raises:
            ChunkShapeError: A piece isn't an object with the fields of its kind.
        """
        sorted_pieces: list[dict[str, Any]] = []
        for piece in pieces:
            placed = self._place(piece)
            if placed is not None:
                sorted_pieces.append(placed)
        return sorted_pieces

    def _place(self, piece: Any) -> dict[str, Any] | None:
        if not is_object(piece):
            raise ChunkShapeError("a tool call that is no object")
        function: Any = piece.get("function") or {}
        if not is_object(function):
            raise ChunkShapeError("a tool call whose function is no object")
        raw_index, raw_id = piece.get("index"), _text(piece.get("id"), "id")
        name, arguments = _text(function.get("name"), "name"), _arguments(function.get("arguments"))
        if self._repeats(raw_id, name, arguments):
            return None
        slot = self._find(raw_index, raw_id, name)
        fresh = slot is None or self._starts_another(slot, raw_id, name)
        if slot is None or fresh:
            slot = self._open(raw_index, raw_id)
        if name and (fresh or name != slot.name):
            slot.name += name
        else:
            name = None
        if arguments:
            slot.pieces.append(arguments)
        head = {"id": slot.call_id, "type": "function"} if fresh else {"id": None}
        return {
            **piece,
            "index": slot.index,
            **head,
            "function": {"name": name, "arguments": arguments},
        }

    def _find(self, raw_index: Any, raw_id: str | None, name: str | None) -> CallSlot | None:
        """The call that a piece points at."""
        if isinstance(raw_index, int):
            return self._by_index.get(raw_index)
        if raw_id is not None and raw_id in self._by_raw_id:
            return self._by_raw_id[raw_id]
        return self.slots[-1] if self.slots and name is None else None

    def _repeats(self, raw_id: str | None, name: str | None, arguments: str | None) -> bool:
        """Whether a call that is there is sent once more, whole."""
        slot = None if raw_id is None else self._by_raw_id.get(raw_id)
        if slot is None or not arguments or name != slot.name:
            return False
        return slot.is_whole() and arguments == slot.arguments

    def _starts_another(self, slot: CallSlot, raw_id: str | None, name: str | None) -> bool:
        """Whether a piece that points at this call is the head of another one."""
        if not name:
            return False
        if raw_id is not None and raw_id != slot.raw_id:
            return slot.raw_id is not None or bool(slot.name)
        return bool(slot.name) and slot.is_whole()

    def _open(self, raw_index: Any, raw_id: str | None) -> CallSlot:
        call_id = raw_id if raw_id is not None and raw_id not in self._used else self._new_id()
        self._used.add(call_id)
        slot = CallSlot(index=len(self.slots), call_id=call_id, raw_id=raw_id)
        self.slots.append(slot)
        if isinstance(raw_index, int):
            self._by_index[raw_index] = slot
        if raw_id is not None:
            self._by_raw_id[raw_id] = slot
        return slot


def _text(value: Any, what: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ChunkShapeError(f"a tool call whose {what} is no text")
    return value


def _arguments(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if is_object(value):  # some local servers send the object itself
        return json.dumps(value, ensure_ascii=False)
    raise ChunkShapeError("a tool call whose arguments are no text")
