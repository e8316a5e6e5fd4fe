"""However the bytes of a stream come, the events are the same."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from remit.models._sse import SseEvent, SseReader

PIECES = st.sampled_from(
    [b"data: ", b"data:", b"event: e", b": c", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"{}", b"\xe4",
     "中".encode(), "\u2028".encode(), "\x85".encode(), b"\xff", b"\xef\xbb\xbf", b" ", b":", b"id: 1"]
)  # fmt: skip
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def events(pieces: list[bytes]) -> list[SseEvent]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@example(b"data: a\r\ndata: b\r\n\r\n", [8])
@given(STREAMS, st.lists(st.integers(min_value=0), max_size=10))
def test_models_events_do_not_depend_on_the_pieces(data: bytes, points: list[int]) -> None:
    """R70: any split of the bytes gives the same events, single bytes too."""
    borders = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    cut = [data[start:end] for start, end in itertools.pairwise(borders)]
    whole = events([data])
    assert events(cut) == whole
    assert events([bytes([byte]) for byte in data]) == whole
