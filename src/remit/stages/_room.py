"""How much a conversation may grow before something old has to go."""

from __future__ import annotations

from typing import Final, Protocol

SHORTEN_AT_PERCENT: Final = 75
"""Of the window: from here on old results are given up."""
DOWN_TO_PERCENT: Final = 50
"""Of the window: so far a conversation is brought down, so that it is seldom done and caches last."""
_LEAST_FACTOR: Final = 0.4
_MOST_FACTOR: Final = 2.0


class Windows(Protocol):
    """What is asked of a pool."""

    @property
    def context_window_tokens(self) -> int:
        """What the model holds."""
        ...

    @property
    def input_room_tokens(self) -> int:
        """How much of it may be input."""
        ...


class Room:
    """Compares estimates with the window; learns from what the provider counted and refused.

    Args:
        windows: Whose windows count. They are read anew each time: a local server tells its own late.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._refused: int | None = None
        self._factor = 1.0

    @property
    def most(self) -> int:
        """The estimate beyond which something has to go."""
        window, room = self._windows.context_window_tokens, self._windows.input_room_tokens
        if self._refused is not None:
            window = min(window, self._refused)
        return max(1, int(min(window * SHORTEN_AT_PERCENT / 100, room) / self._factor))

    @property
    def target(self) -> int:
        """The estimate to come down to then."""
        return max(1, int(self.most * DOWN_TO_PERCENT / SHORTEN_AT_PERCENT))

    def learn(self, *, estimated: int, counted: int | None) -> None:
        """A request of this estimate was counted so by the provider; None: it didn't say."""
        if counted and estimated > 0:
            self._factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, counted / estimated))

    def refused(self, *, estimated: int) -> None:
        """A request of this estimate was too long: the window is smaller than was known."""
        tokens = int(estimated * self._factor)
        self._refused = tokens if self._refused is None else min(self._refused, tokens)
