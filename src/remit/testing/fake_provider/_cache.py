"""What providers keep of the prompts that they have read: two kinds of prompt cache, strict as the real ones.

Tokens are characters / 4, as everywhere in the fake.

Sources, as of 2026-11: OpenAI's guide on prompt caching (automatic; prefixes of 1 024 tokens and more, in
steps of 128; requests with another `prompt_cache_key` go to another machine), Google's on implicit caching
(automatic, a minimum per model), Anthropic's on prompt caching (only up to marks; a minimum per model; a
mark finds an entry up to 20 blocks before it).
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

CHARACTERS_PER_TOKEN: Final = 4
_KEPT: Final = 200_000
"""Entries; those that were used longest ago go first."""
_BLOCKS_LOOKED_BACK: Final = 20


class _Entries:
    """Hashes that were seen, bounded."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def has(self, key: bytes) -> bool:
        """Whether it is there; it counts as used."""
        if key not in self._seen:
            return False
        self._seen.move_to_end(key)
        return True

    def add(self, key: bytes) -> None:
        """From now on it is."""
        self._seen[key] = None
        if len(self._seen) > _KEPT:
            self._seen.popitem(last=False)


class PrefixCache:
    """Keeps every prompt by itself, and finds the longest beginning that it knows.

    Args:
        least_tokens: A shorter beginning isn't found.
        step_tokens: Beginnings are found in these steps.
    """

    def __init__(self, *, least_tokens: int = 1_024, step_tokens: int = 128) -> None:
        self._least = least_tokens
        self._step = step_tokens
        self._entries = _Entries()

    def read(self, scope: str, parts: Iterable[Any]) -> int:
        """Tokens of a prompt that were read before, in the same scope; the prompt is known from now on.

        Args:
            scope: Model, and whatever else keeps prompts apart.
            parts: The prompt's JSON values, in the order in which the provider reads them.
        """
        text = "".join(json.dumps(part, sort_keys=True) for part in parts)
        size = self._step * CHARACTERS_PER_TOKEN
        digest = hashlib.sha256(scope.encode())
        known, unbroken = 0, True
        for start in range(0, len(text) - size + 1, size):
            digest.update(text[start : start + size].encode())
            key = digest.digest()
            unbroken = unbroken and self._entries.has(key)
            known += self._step if unbroken else 0
            self._entries.add(key)
        return known if known >= self._least else 0


class MarkedCache:
    """Keeps a prompt only up to the marks in it, and finds it again only at or shortly before a mark."""

    def __init__(self) -> None:
        self._entries = _Entries()

    def count(
        self, scope: str, blocks: Iterable[Mapping[str, Any]], *, least_tokens: int
    ) -> tuple[int, int, int]:
        """Tokens read from the cache, written to it, and neither.

        Args:
            scope: The model.
            blocks: The prompt's blocks in order; those with `cache_control` are marked.
            least_tokens: A shorter prefix is neither kept nor found.
        """
        digest, tokens = hashlib.sha256(scope.encode()), 0
        places: list[tuple[bytes, int]] = []
        marks: list[int] = []
        for number, block in enumerate(blocks):
            text = json.dumps({k: v for k, v in block.items() if k != "cache_control"}, sort_keys=True)
            digest.update(text.encode())
            tokens += max(1, len(text) // CHARACTERS_PER_TOKEN)
            places.append((digest.digest(), tokens))
            if "cache_control" in block:
                marks.append(number)
        marks = [number for number in marks if places[number][1] >= least_tokens]
        read = max((self._found(places, number, least_tokens) for number in marks), default=0)
        for number in marks:
            self._entries.add(places[number][0])
        marked = places[marks[-1]][1] if marks else 0
        return read, max(0, marked - read), tokens - max(marked, read)

    def _found(self, places: list[tuple[bytes, int]], mark: int, least_tokens: int) -> int:
        for key, tokens in reversed(places[max(0, mark - _BLOCKS_LOOKED_BACK) : mark + 1]):
            if tokens >= least_tokens and self._entries.has(key):
                return tokens
        return 0
