"""How much a conversation may grow before something old has to go."""

from __future__ import annotations

from typing import Final

SHORTEN_AT_PERCENT: Final = 75
"""Of the window: from here on old results are given up."""
DOWN_TO_PERCENT: Final = 50
"""Of the window: so far a conversation is brought down, so that it is seldom done and caches last."""
_LEAST_FACTOR: Final = 0.4
_MOST_FACTOR: Final = 2.0


class Room:
    """Compares estimates with the window; learns from what the provider counted and refused.

    Args:
        window_tokens: What the model holds.
        input_tokens: How much of it may be input.
    """

    def __init__(self, *, window_tokens: int, input_tokens: int) -> None:
        self._window = window_tokens
        self._input = input_tokens
        self._factor = 1.0

    @property
    def most(self) -> int:
        """The estimate beyond which something has to go."""
        return max(1, int(min(self._window * SHORTEN_AT_PERCENT / 100, self._input) / self._factor))

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
        self._window = min(self._window, tokens)
        self._input = min(self._input, tokens)
