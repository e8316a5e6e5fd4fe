"""Whether a server has read less than it was sent; a prompt that it read whole is never called cut."""

from __future__ import annotations

import pytest

from remit.models import UserMessage
from remit.models._local_prompts import was_cut

PROSE = "The quick brown fox jumps over the lazy dog, once more. " * 2_000


@pytest.mark.parametrize(
    ("text", "read", "window", "cut"),
    [
        (PROSE, 4_096, 4_096, True),
        (PROSE, 2_000, None, True),
        (PROSE, 25_000, None, False),
        (PROSE, 25_000, 32_768, False),
        (PROSE, None, 4_096, False),
        (PROSE, 10, None, False),
        ("{" * 2_000_000, 3_700, None, False),
        (" " * 2_000_000, 3_700, 4_096, False),
        ("short", 1_000, 1_000, False),
    ],
)
def test_a_cut_prompt_is_told_from_one_that_tokenizes_well(
    text: str, read: int | None, window: int | None, *, cut: bool
) -> None:
    """R21: a count near the window, or far below what any text makes, is a cut; a row of one sign is none."""
    assert was_cut([UserMessage(text=text)], read_tokens=read, window_tokens=window) is cut
