"""The same call, failing again and again."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from remit.models import ToolCallBlock
from remit.primitives import StrictJsonError, dump_json, load_json

TOLD_AT: Final = 3
"""In so many rounds the same call has failed when the model is told."""
ENDS_AT: Final = 5
"""In so many rounds it has failed when the stage ends."""


class FailingCalls:
    """Counts in how many rounds a call failed with the same arguments.

    A change of files by a tool may turn the next try into another one, so it starts the count anew;
    other calls in between don't.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, bytes], int] = {}
        self._this_round: set[tuple[str, bytes]] = set()

    def start_round(self) -> None:
        """Calls of one reply count once, however often it repeats them."""
        self._this_round.clear()

    def failed(self, call: ToolCallBlock) -> int:
        """Note a failure; in how many rounds that call has failed now."""
        key = _key(call)
        if key not in self._this_round:
            self._this_round.add(key)
            self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]

    def succeeded(self, call: ToolCallBlock, *, changed_files: bool) -> None:
        """Note a success."""
        self._counts.pop(_key(call), None)
        self._this_round.discard(_key(call))
        if changed_files:
            self._counts.clear()
            self._this_round.clear()


def _key(call: ToolCallBlock) -> tuple[str, bytes]:
    """Name and arguments; white space and the order of keys make no difference."""
    text = call.arguments.strip()
    try:
        text = dump_json(load_json(text), sort_keys=True)
    except StrictJsonError:
        pass  # what isn't JSON is compared as it is
    return call.name, sha256(text.encode("utf-8", "surrogatepass")).digest()
