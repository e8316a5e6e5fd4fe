"""What a stream of Responses or Gemini leaves in the record: whether it is whole, and its bill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.models._google_observer import GeminiObserver
from remit.models._google_usage import read_gemini_usage
from remit.models._reading import ChunkShapeError
from remit.models._responses_observer import ResponsesObserver

MESSAGE = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "hi"}]}
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
COUNTS = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}


def frames(*values: Any) -> bytes:
    return b"".join(f"data: {json.dumps(value)}\n\n".encode() for value in values)


def ended(kind: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "usage": USAGE, **response}}


def responses(*values: Any, used: tuple[str, ...] = ()) -> ResponsesObserver:
    observer = ResponsesObserver(used_ids=used, new_id=lambda: "made")
    observer.feed(frames(*values))
    return observer


def gemini(*values: Any, used: tuple[str, ...] = ()) -> GeminiObserver:
    observer = GeminiObserver(used_ids=used, new_id=lambda: "made")
    observer.feed(frames(*values))
    return observer


def candidate(*parts: dict[str, Any], stop: str | None = None, **more: Any) -> dict[str, Any]:
    reason = {"finishReason": stop} if stop is not None else {}
    return {"candidates": [{"content": {"parts": list(parts)}, **reason}], **more}


def test_responses_are_whole_at_their_end_mark() -> None:
    """R69: items and text alone are no end; the raw usage stays under the names that it came with."""
    item = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    assert not responses(item).reading.complete
    whole = responses(item, ended()).reading
    assert (whole.complete, whole.finish_word) == (True, "completed")
    assert whole.usage is not None
    assert (whole.usage.raw, whole.usage.coverage) == (USAGE, "reported")


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            {"type": "error", "code": "server_error", "message": "no"},
            {"code": "server_error", "message": "no"},
        ),
        ({"type": "error", "error": {"message": "nested"}}, {"message": "nested"}),
        (ended("failed", error={"code": "x"}), {"code": "x"}),
        (ended("failed"), {"message": "the response failed"}),
    ],
)
def test_an_error_is_never_a_whole_reply(event: dict[str, Any], error: dict[str, Any]) -> None:
    """R69: also where an end mark follows it."""
    reading = responses(event, ended()).reading
    assert reading.error == error
    assert not reading.complete


def test_a_cut_reply_says_so() -> None:
    """R32: `incomplete` goes by its reason."""
    reading = responses(ended("incomplete", incomplete_details={"reason": "max_output_tokens"})).reading
    assert (reading.complete, reading.finish_word) == (True, "max_output_tokens")


def test_items_that_only_the_end_has() -> None:
    """R30: an item that came whole before isn't taken again from the end, one that didn't is."""
    first = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    other = {**MESSAGE, "id": "msg_2"}
    reading = responses(first, ended(output=[{**MESSAGE, "id": "changed"}, other])).reading
    assert [item["id"] for item in reading.output] == ["msg_1", "msg_2"]


def test_an_item_comes_whole_once() -> None:
    """R69: a second item at the same place can't be understood, and a fault is no whole reply."""
    item = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    observer = responses(item)
    with pytest.raises(ChunkShapeError):
        observer.feed(frames(item))
    observer.feed(frames(ended()))
    assert not observer.reading.complete


def test_a_call_has_an_id_that_nobody_has() -> None:
    """R26: one that the conversation has already, or another call of the reply, gets another."""
    calls = [{"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in "aab"]
    reading = responses(ended(output=calls), used=("b",)).reading
    assert [call["call_id"] for call in reading.calls] == ["a", "made", "made"]


@pytest.mark.parametrize("raw", [[1], "much", 7])
def test_a_usage_that_is_no_object(raw: Any) -> None:
    """R84: it is flagged, in both dialects, and counts for nothing."""
    first = responses(ended(usage=raw)).reading
    second = gemini(candidate({"text": "a"}, stop="STOP", usageMetadata=raw)).reading
    assert (first.flags, second.flags) == (["bad_usage"], ["bad_usage"])
    assert (first.usage, second.usage) == (None, None)


def test_gemini_is_whole_once_it_says_why_it_stopped() -> None:
    """R69, R21: usage before that counts a part; an error takes the whole away."""
    part = gemini(candidate({"text": "a"}, usageMetadata=COUNTS)).reading
    assert part.usage is not None
    assert (part.complete, part.usage.coverage, part.usage.raw) == (False, "partial", COUNTS)
    observer = gemini(candidate({"text": "a"}, stop="STOP", usageMetadata=COUNTS))
    assert observer.reading.usage is not None
    assert (observer.reading.complete, observer.reading.usage.coverage) == (True, "reported")
    with pytest.raises(ChunkShapeError):
        observer.feed(frames({"error": {"code": 500}}))
    assert observer.reading.error == {"code": 500}
    assert not observer.reading.complete
    odd = gemini(candidate({"text": "a"}, stop="STOP"))
    with pytest.raises(ChunkShapeError):
        odd.feed(b"data: nonsense\n\n")
    assert not odd.reading.complete


def test_parts_are_joined_only_without_signatures() -> None:
    """R29: a signature belongs to the very part that it came on, also to one without text."""
    sealed = {"text": "c", "thoughtSignature": "s1"}
    empty = {"text": "", "thoughtSignature": "s2"}
    thought = {"text": "t", "thought": True}
    pieces = [
        {"text": "a"},
        {"text": "b"},
        sealed,
        {"text": "d"},
        empty,
        {"text": ""},
        thought,
        {"text": "e"},
    ]
    reading = gemini(*(candidate(piece) for piece in pieces)).reading
    assert [(part.kind, part.text, part.signature) for part in reading.parts] == [
        ("text", "ab", ""),
        ("text", "c", "s1"),
        ("text", "d", ""),
        ("text", "", "s2"),
        ("thought", "t", ""),
        ("text", "e", ""),
    ]


def test_calls_of_gemini_keep_signature_and_id() -> None:
    """R29: the provider's id stays beside ours, where that had to be another one."""
    call = {"functionCall": {"id": "x", "name": "f", "args": {}}, "thoughtSignature": "sig"}
    (first,) = gemini(candidate(call, stop="STOP")).reading.calls
    (other,) = gemini(candidate(call, stop="STOP"), used=("x",)).reading.calls
    assert (first.call_id, first.raw_id, first.signature) == ("x", "x", "sig")
    assert (other.call_id, other.raw_id, other.signature) == ("made", "x", "sig")


def test_a_prompt_that_was_not_taken() -> None:
    """R69: it is a whole answer of its own; a reason to stop that came with it stays."""
    feedback = {"promptFeedback": {"blockReason": "SAFETY"}}
    alone, beside = gemini(feedback).reading, gemini(candidate(stop="OTHER", **feedback)).reading
    assert (alone.complete, alone.blocked, alone.finish_word) == (True, "SAFETY", "SAFETY")
    assert (beside.blocked, beside.finish_word) == ("SAFETY", "OTHER")


@pytest.mark.parametrize(
    ("raw", "numbers", "coverage", "flags"),
    [
        (COUNTS, (7, 3, 0, 0, 10), "reported", ()),
        (
            {
                "promptTokenCount": 10,
                "candidatesTokenCount": 200,
                "thoughtsTokenCount": 5000,
                "totalTokenCount": 5210,
            },
            (10, 5200, 0, 5000, 5210),
            "reported",
            (),
        ),
        (COUNTS | {"toolUsePromptTokenCount": 5, "totalTokenCount": 15}, (12, 3, 0, 0, 15), "reported", ()),
        (COUNTS | {"cachedContentTokenCount": 7}, (7, 3, 7, 0, 10), "reported", ()),
        (COUNTS | {"cachedContentTokenCount": 8}, (7, 3, 8, 0, 10), "partial", ("part_exceeds_whole",)),
        (COUNTS | {"totalTokenCount": 11}, (7, 3, 0, 0, 10), "partial", ("total_mismatch",)),
        (COUNTS | {"totalTokenCount": 9}, (7, 3, 0, 0, 10), "reported", ("total_mismatch",)),
        (COUNTS | {"cachedContentTokenCount": -1}, (7, 3, 0, 0, 10), "partial", ("bad_number",)),
        ({"promptTokenCount": 7, "totalTokenCount": 7}, (7, 0, 0, 0, 7), "reported", ()),
        ({"promptTokenCount": 7}, (7, None, 0, None, None), "partial", ()),
    ],
)
def test_what_gemini_counts(
    raw: dict[str, int], numbers: tuple[int | None, ...], coverage: str, flags: tuple[str, ...]
) -> None:
    """R18, R20: what it thought is output, what its tools put there is input, and a gap is never hidden."""
    usage = read_gemini_usage(raw, final=True)
    assert numbers == (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.reasoning_tokens,
        usage.total_tokens,
    )
    assert (usage.coverage, usage.flags, usage.raw) == (coverage, flags, raw)
    assert read_gemini_usage(raw, final=False).coverage == "partial"


def test_gemini_counts_that_shrink_are_flagged() -> None:
    """R20: the last usage counts; one that is smaller than an earlier one says so, the same again doesn't."""
    less = COUNTS | {"candidatesTokenCount": 2, "totalTokenCount": 9}
    same = gemini(candidate(usageMetadata=COUNTS), candidate(stop="STOP", usageMetadata=COUNTS)).reading
    shrunk = gemini(candidate(usageMetadata=COUNTS), candidate(stop="STOP", usageMetadata=less)).reading
    assert (same.flags, shrunk.flags) == ([], ["usage_shrank"])


@pytest.mark.parametrize("dialect", ["responses", "gemini"])
def test_where_the_network_cuts_a_record(dialect: str) -> None:
    """R69: a record in pieces is no oddity; one that nobody closed is half a record, whatever it holds."""
    observer: Any = responses() if dialect == "responses" else gemini()
    last = ended() if dialect == "responses" else candidate({"text": "a"}, stop="STOP")
    whole = frames(last)
    for place in range(len(whole) - 10):
        observer.feed(whole[place : place + 1])
    observer.finish()
    assert observer.reading.unfinished_record
    assert not observer.reading.complete
    again: Any = responses() if dialect == "responses" else gemini()
    for place in range(len(whole)):
        again.feed(whole[place : place + 1])
    assert again.reading.complete
    assert again.reading.flags == []
