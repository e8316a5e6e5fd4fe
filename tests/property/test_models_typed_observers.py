"""Streams whose records name their type are read the same however they are cut; nothing half is whole."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.models._anthropic_observer import AnthropicObserver
from remit.models._reading import ChunkShapeError
from remit.models._responses_observer import ResponsesObserver

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use"]) | VALUES},
    optional={
        "text": VALUES,
        "thinking": VALUES,
        "id": VALUES,
        "name": VALUES,
        "input": VALUES,
        "data": VALUES,
    },
)
DELTA = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta"])
        | VALUES
    },
    optional={"text": VALUES, "partial_json": VALUES, "stop_reason": st.just("end_turn") | VALUES},
)
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from([*KINDS, "message_delta", "message_stop", "ping", "error"]) | VALUES},
    optional={
        "index": st.integers(0, 1) | VALUES,
        "message": st.fixed_dictionaries({"usage": VALUES}) | VALUES,
        "content_block": BLOCK | VALUES,
        "delta": DELTA | VALUES,
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), VALUES) | VALUES,
        "error": VALUES,
    },
)
RECORDS = st.lists(
    EVENT.map(lambda event: json.dumps(event, ensure_ascii=False)) | st.text(max_size=10), max_size=6
)
STREAMS = RECORDS.map(
    lambda records: "".join(f"data: {record}\n\n" for record in records).encode(errors="replace")
) | st.binary(max_size=60)


def read(pieces: list[bytes]) -> tuple[dict[str, Any], bytes]:
    made = (f"made_{number}" for number in itertools.count())
    observer = AnthropicObserver(used_ids=(), new_id=lambda: next(made))
    shown = b""
    try:
        for piece in pieces:
            shown += observer.feed(piece)
        shown += observer.finish()
    except ChunkShapeError:
        assert observer.reading.fault
    reading = asdict(observer.reading) | {"complete": observer.reading.complete}
    reading["usage"] = observer.reading.usage and observer.reading.usage.to_json()
    return reading, shown


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_models_typed_reading_does_not_depend_on_the_pieces(data: bytes, points: list[int]) -> None:
    """R69, R70: the verdict and the numbers are those of the bytes, however they came."""
    borders = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    whole, shown = read([data])
    pieces, shown_of_pieces = read([data[start:end] for start, end in itertools.pairwise(borders)])
    for reading in (whole, pieces):
        reading["flags"] = sorted(set(reading["flags"]) - {"odd_tail"})
    assert repr(pieces) == repr(whole)
    if whole["fault"] is None:
        assert shown_of_pieces == shown


@given(STREAMS)
def test_models_typed_what_goes_on_is_plain(data: bytes) -> None:
    """R70, R84: what an SDK sees is one JSON record a line, with finite numbers and no odd separators."""
    _, shown = read([data])
    for line in shown.decode().split("\n"):
        assert not set(line) & set("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
        if line.startswith("data: "):
            json.loads(line.removeprefix("data: "), parse_constant=pytest.fail)


def framed(*records: dict[str, Any]) -> bytes:
    lines = (f"event: {r['type']}\ndata: {json.dumps(r, ensure_ascii=False)}\n\n" for r in records)
    return "".join(lines).encode()


ANTHROPIC = framed(
    {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ü\u2028世"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)
MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "ü\u2028世"}]}
RESPONSES = framed(
    {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "ü\u2028世"},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [MESSAGE]}},
)


def test_models_a_prefix_of_responses_is_whole_only_with_its_end() -> None:
    """R69: cut at every byte: no prefix without `response.completed` is a reply, and none is a fault."""
    for length in range(len(RESPONSES) + 1):
        observer = ResponsesObserver(used_ids=(), new_id=lambda: "made")
        observer.feed(RESPONSES[:length])
        observer.finish()
        assert observer.reading.complete is (length >= len(RESPONSES) - 2), length
        assert observer.reading.fault is None, length


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "response", "item", "output_index", "delta"]),
            VALUES | st.just("response.completed") | st.just("response.output_item.done"),
        ),
        max_size=5,
    )
)
def test_models_responses_garbage_is_a_fault_or_no_reply(records: list[dict[str, Any]]) -> None:
    """R84: whatever the records are, reading them ends in a verdict."""
    observer = ResponsesObserver(used_ids=(), new_id=lambda: "made")
    data = "".join(f"data: {json.dumps(record)}\n\n" for record in records).encode()
    try:
        shown = observer.feed(data) + observer.finish()
    except ChunkShapeError:
        assert observer.reading.fault
        return
    for line in shown.decode().split("\n"):
        if line.startswith("data: "):
            json.loads(line.removeprefix("data: "), parse_constant=pytest.fail)


@pytest.mark.parametrize("kind", ["created", "in_progress", "queued", "completed", "incomplete", "failed"])
def test_models_a_response_repeats_nothing_to_the_sdk(kind: str) -> None:
    """R85: lists of which the SDK tries each entry as dozens of types don't reach it: a few KB held it up."""
    junk: list[Any] = ["a"] * 3_000
    echoed = {"tools": junk, "input": junk, "instructions": junk, "metadata": {"a": junk}, "text": junk}
    output = [MESSAGE] if kind in ("completed", "incomplete") else junk
    response = {"id": "r", "status": kind, "output": output, **echoed}
    observer = ResponsesObserver(used_ids=(), new_id=lambda: "made")
    shown = observer.feed(framed({"type": f"response.{kind}", "response": response})) + observer.finish()
    assert len(shown) < 1_000
    passed_on = json.loads(shown.decode().partition("data: ")[2].split("\n")[0])["response"]
    assert (passed_on["output"], passed_on["tools"], passed_on["id"]) == ([], [], "r")
    assert [item["type"] for item in observer.reading.items.values()] == (
        ["message"] if kind in ("completed", "incomplete") else []
    )


def test_models_a_prefix_of_messages_is_whole_only_with_its_end() -> None:
    """R69: cut at every byte: no prefix without `message_stop` counts as a reply, and none is a fault."""
    for length in range(len(ANTHROPIC) + 1):
        reading, _ = read([ANTHROPIC[:length]])
        assert reading["complete"] is (length >= len(ANTHROPIC) - 2), length
        assert reading["fault"] is None, length
