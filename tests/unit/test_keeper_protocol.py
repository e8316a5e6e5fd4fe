"""Frames between node and keeper: bounded, found whatever the cuts, each error of one call alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.workspaces.keeper import _protocol
from remit.workspaces.keeper._protocol import HEADER, Decoder, Frame, FrameTooLarge, encode

bodies = st.dictionaries(
    st.text(max_size=8),
    st.none() | st.integers(min_value=-(2**63), max_value=2**63) | st.text(max_size=40) | st.booleans(),
    max_size=4,
)


@given(
    st.lists(st.tuples(st.integers(min_value=0, max_value=2**64 - 1), bodies), max_size=6),
    st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=40),
)
def test_frames_are_found_whatever_the_cuts(
    messages: list[tuple[int, dict[str, object]]], cuts: list[int]
) -> None:
    """R46: own framing; how the bytes are cut doesn't matter."""
    data = b"".join(encode(number, body) for number, body in messages)
    decoder, found, position = Decoder(), list[Frame](), 0
    while position < len(data):
        step = cuts[len(found) % len(cuts)]
        found += decoder.feed(data[position : position + step])
        position += step
    assert [(frame.number, frame.body) for frame in found] == messages


def test_file_names_that_are_not_text_survive() -> None:
    """R41: a name of bytes that aren't UTF-8 is carried as it is."""
    name = b"caf\xe9\xff".decode("utf-8", "surrogateescape")
    (frame,) = Decoder().feed(encode(3, {"path": name}))
    assert frame.body == {"path": name}


def test_a_frame_that_is_too_large_is_skipped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """R46: above the stated maximum it is an error of that record; what follows is read as before."""
    monkeypatch.setattr(_protocol, "MAX_FRAME_BYTES", 100)
    with pytest.raises(FrameTooLarge):
        encode(1, {"x": "y" * 100})
    big = json.dumps({"x": "y" * 1_000}).encode()
    data = HEADER.pack(len(big), 7) + big + encode(8, {"ok": True})
    for size in (1, 13, 4_096):
        decoder, found = Decoder(), list[Frame]()
        for start in range(0, len(data), size):
            found += decoder.feed(data[start : start + size])
        assert found == [Frame(7, None), Frame(8, {"ok": True})]
