"""Records over a stream of bytes: however they are cut and mixed, what goes in comes out."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.nodes.wire import (
    MAX_FRAME_BYTES,
    MAX_RECORD_BYTES,
    BrokenFrames,
    FrameDecoder,
    Oversized,
    Record,
    frames_of,
)

RECORDS = st.lists(st.binary(max_size=3 * MAX_FRAME_BYTES // 2), max_size=5)


def mixed(payloads: list[bytes], choose: st.DataObject) -> bytes:
    """The frames of all records, in any order that keeps each record's own."""
    waiting = {number: list(frames_of(number, payload)) for number, payload in enumerate(payloads)}
    sent = bytearray()
    while waiting:
        number = choose.draw(st.sampled_from(sorted(waiting)))
        sent += waiting[number].pop(0)
        if not waiting[number]:
            del waiting[number]
    return bytes(sent)


def fed(decoder: FrameDecoder, data: bytes, cuts: list[int]) -> list[Record | Oversized]:
    """What comes out when the bytes come in pieces."""
    found: list[Record | Oversized] = []
    begin = 0
    for end in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        found += decoder.feed(data[begin:end])
        begin = end
    return found


@settings(deadline=None, max_examples=60)
@given(
    payloads=RECORDS,
    cuts=st.lists(st.integers(min_value=0, max_value=4 * MAX_FRAME_BYTES), max_size=12),
    choose=st.data(),
)
def test_records_come_out_as_they_went_in(
    payloads: list[bytes], cuts: list[int], choose: st.DataObject
) -> None:
    """R46: whole, once, unchanged, wherever the stream is cut and whatever else is under way."""
    decoder = FrameDecoder()
    found = fed(decoder, mixed(payloads, choose), cuts)
    assert {record.number: record for record in found} == {
        number: Record(number, payload) for number, payload in enumerate(payloads)
    }
    assert len(found) == len(payloads)
    assert decoder.is_clean


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(min_value=0, max_value=MAX_FRAME_BYTES + 10), min_size=1, max_size=5),
    limit=st.integers(min_value=0, max_value=MAX_FRAME_BYTES + 5),
    choose=st.data(),
)
def test_one_that_is_too_large_costs_itself_alone(
    sizes: list[int], limit: int, choose: st.DataObject
) -> None:
    """R46: above the maximum a record is told by its number and size; all others come whole."""
    decoder = FrameDecoder(max_record_bytes=limit)
    found = fed(decoder, mixed([b"x" * size for size in sizes], choose), [])
    assert {record.number for record in found} == set(range(len(sizes)))
    for record in found:
        size = sizes[record.number]
        assert record == (
            Oversized(record.number, size) if size > limit else Record(record.number, b"x" * size)
        )
    assert decoder.is_clean


@settings(max_examples=60)
@given(data=st.binary(min_size=13, max_size=200))
def test_noise_is_refused_or_waits_for_more(data: bytes) -> None:
    """Anything that isn't frames ends in the one error there is, never in another."""
    with contextlib.suppress(BrokenFrames):
        FrameDecoder().feed(data)


@pytest.mark.parametrize("size", [70_000, 5_000_000])
def test_long_records_pass(size: int) -> None:
    """R46: 70 kB and 5 MB are no more than a few frames."""
    payload = bytes(size)
    decoder = FrameDecoder()
    found = [record for frame in frames_of(7, payload) for record in decoder.feed(frame)]
    assert found == [Record(7, payload)]


def test_200_mb_are_refused_and_never_held() -> None:
    """R46: a record of 200 MB is dropped as it comes; what comes after it is read."""
    decoder = FrameDecoder()
    head, part = struct.Struct("!IQB"), bytes(MAX_FRAME_BYTES)
    frames = 200_000_000 // MAX_FRAME_BYTES + 1
    for _ in range(frames - 1):
        assert decoder.feed(head.pack(len(part), 3, 0) + part) == []
        assert sum(len(record.payload) for record in decoder._open.values()) <= MAX_RECORD_BYTES
    assert decoder.feed(head.pack(len(part), 3, 1) + part) == [Oversized(3, frames * MAX_FRAME_BYTES)]
    (frame,) = frames_of(4, b"after it")
    assert decoder.feed(frame) == [Record(4, b"after it")]


def test_a_frame_is_bounded_before_it_is_read() -> None:
    """A length that no frame may have is refused at once, not waited for."""
    with pytest.raises(BrokenFrames):
        FrameDecoder().feed(struct.pack("!IQB", MAX_FRAME_BYTES + 1, 1, 1))
    with pytest.raises(BrokenFrames):
        FrameDecoder().feed(struct.pack("!IQB", 0, 1, 2))
