"""Whatever bytes come, they are read the same however they are cut, and nothing half is taken for whole."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from remit.models._chat_observer import ChatObserver
from remit.models._reading import ChunkShapeError

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
FUNCTION = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["f", None]) | VALUES,
        "arguments": st.sampled_from(["{}", "{", ""]) | VALUES,
    },
)
PIECE = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | VALUES,
        "id": st.sampled_from(["a", "b", "", None]) | VALUES,
        "function": FUNCTION | VALUES,
    },
)
DELTA = st.fixed_dictionaries(
    {}, optional={"content": st.text(max_size=5) | VALUES, "tool_calls": st.lists(PIECE, max_size=2) | VALUES}
)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={"delta": DELTA | VALUES, "finish_reason": st.sampled_from(["stop", None]) | VALUES},
            ),
            max_size=2,
        )
        | VALUES,
        "usage": st.dictionaries(st.sampled_from(["prompt_tokens", "total_tokens"]), VALUES) | VALUES,
        "error": VALUES,
    },
)
RECORDS = st.lists(
    CHUNK.map(lambda chunk: json.dumps(chunk, ensure_ascii=False))
    | st.just("[DONE]")
    | st.text(max_size=10)
    | st.just('{"choices": []}'),
    max_size=5,
)
STREAMS = RECORDS.map(
    lambda records: "".join(f"data: {record}\n\n" for record in records).encode()
) | st.binary(max_size=60)


def read(pieces: list[bytes]) -> tuple[dict[str, Any], bytes]:
    """What was read, and what an SDK would have seen; a fault ends the reading."""
    made = (f"made_{number}" for number in itertools.count())
    observer = ChatObserver(used_ids=(), new_id=lambda: next(made))
    shown = b""
    try:
        for piece in pieces:
            shown += observer.feed(piece)
        shown += observer.finish()
    except ChunkShapeError:
        assert observer.reading.fault
    reading = asdict(observer.reading)
    reading["usage"] = observer.reading.usage and observer.reading.usage.to_json()
    return reading, shown


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_models_reading_does_not_depend_on_the_pieces(data: bytes, points: list[int]) -> None:
    """R69, R70: the verdict and the numbers are those of the bytes, however they came; a fault is a fault."""
    borders = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    whole, shown = read([data])
    pieces, shown_of_pieces = read([data[start:end] for start, end in itertools.pairwise(borders)])
    for reading in (whole, pieces):
        # Whether a tail was seen may depend on what came together with the end mark.
        reading["flags"] = sorted(set(reading["flags"]) - {"odd_tail"})
    assert repr(pieces) == repr(whole)
    if whole["fault"] is None:
        assert shown_of_pieces == shown


@example('data: {"choices": [{"delta": {"content": "x\x85y\u2028z\u2029w"}}]}\n\n'.encode())
@given(STREAMS)
def test_models_what_goes_on_is_plain(data: bytes) -> None:
    """R70, R84: what an SDK sees is one JSON record a line, with finite numbers and no odd separators."""
    _, shown = read([data])
    for line in shown.decode().split("\n"):
        assert not set(line) & set("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
        if line and line != "data: [DONE]":
            json.loads(line.removeprefix("data: "))


GOOD = "".join(
    f"data: {json.dumps(record)}\n\n"
    for record in (
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
).encode()


@given(st.integers(0, len(GOOD)))
def test_models_a_prefix_is_whole_only_with_its_end(length: int) -> None:
    """R69: no prefix without the reason why the model stopped counts as a reply."""
    reading, _ = read([GOOD[:length]])
    assert (reading["finish_word"] == "stop") is (length >= len(GOOD) - 2)
    assert reading["fault"] is None
