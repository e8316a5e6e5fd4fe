"""From what a caller sent to a request that can be run."""

from __future__ import annotations

from typing import Any

import pytest

from remit.contract import LimitRequest, RunRequest, TextPart
from remit.errors import InvalidRequest, PayloadTooLarge, RequestError
from remit.requests import (
    MAX_IMAGES,
    MAX_METADATA_BYTES,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    fingerprint,
    parse_request,
)


def _refused(body: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_request(body)
    return caught.value


def test_valid_body_is_taken() -> None:
    """S2, S5: every field in its place, a delivery as a word, options per stage, a limit of 10 ms."""
    parsed = parse_request(
        {
            "id": "my-run_1",
            "binding": "reviewed",
            "prompt": "fix it",
            "workspace": {"ref": "app", "base": "head", "subdir": "packages/a"},
            "stages": {"work": {"options": {"temperature": 0.2}}, "plan": {"model": "openai:gpt-5.2"}},
            "limits": {"wall_clock_ms": 10, "max_cost_usd": 0.5},
            "delivery": "patch",
            "metadata": {"ticket": 7, "tags": ["a", None, True, 1.5]},
        }
    )
    request = parsed.request
    assert parsed.text_replaced == 0
    assert request.limits.wall_clock_ms == 10
    assert request.delivery is not None
    assert request.delivery.mode == "patch"
    assert request.stages["work"].options == {"temperature": 0.2}
    assert request.metadata == {"ticket": 7, "tags": ["a", None, True, 1.5]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "x", "content": [{"type": "text", "text": "y"}]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": " \n\t\u00a0"}, "prompt"),
        ({"prompt": "\u200b\ufeff"}, "prompt"),
        ({"prompt": "\x00"}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": None, "content": []}, "content"),
        ({"content": [{"type": "text", "text": "  "}]}, "content"),
        ({"content": [{"type": "image"}]}, "content.0.url"),
        ({"content": [{"type": "text"}]}, "content.0.text"),
        ({"content": [{"type": "video", "url": "x"}]}, "content.0.type"),
        (
            {"content": [{"type": "text", "text": "y"}, {"type": "image", "url": "http://a/b.png"}]},
            "content.1.url",
        ),
        ({"prompt": "x", "promt": "y"}, "promt"),
        ({"prompt": "x", "Prompt": "y"}, "Prompt"),
        ({"prompt": "x", "id": "a b"}, "id"),
        ({"prompt": "x", "id": ""}, "id"),
        ({"prompt": "x", "session_id": "../x"}, "session_id"),
        ({"prompt": "x", "limits": {"max_rounds": 1}}, "limits.max_rounds"),
        ({"prompt": "x", "limits": {"wall_clock_ms": 0}}, "limits.wall_clock_ms"),
        ({"prompt": "x", "limits": {"wall_clock_ms": -1}}, "limits.wall_clock_ms"),
        ({"prompt": "x", "limits": {"wall_clock_ms": 1.5}}, "limits.wall_clock_ms"),
        ({"prompt": "x", "limits": {"wall_clock_ms": "10"}}, "limits.wall_clock_ms"),
        ({"prompt": "x", "limits": {"wall_clock_ms": True}}, "limits.wall_clock_ms"),
        ({"prompt": "x", "limits": {"max_cost_usd": float("nan")}}, "limits.max_cost_usd"),
        ({"prompt": "x", "limits": {"max_cost_usd": "Infinity"}}, "limits.max_cost_usd"),
        ({"prompt": "x", "limits": {"max_cost_usd": 0}}, "limits.max_cost_usd"),
        ({"prompt": "x", "delivery": "push"}, "delivery.mode"),
        ({"prompt": "x", "delivery": {"mode": "patch", "branch": "b"}}, "delivery.branch"),
        ({"prompt": "x", "profile": "fast"}, "profile"),
        ({"prompt": "x", "stages": {"think": {}}}, "stages.think"),
        ({"prompt": "x", "model": " "}, "model"),
        ({"prompt": "x", "model": "a\nb"}, "model"),
        ({"prompt": "x", "binding": ""}, "binding"),
        ({"prompt": "x", "workspace": {"ref": ""}}, "workspace.ref"),
        ({"prompt": "x", "webhook": "file:///etc/passwd"}, "webhook"),
        ({"prompt": "x", "webhook": ""}, "webhook"),
        ({"prompt": "x", "metadata": [1]}, "metadata"),
        ({"prompt": "x", "metadata": {"a": float("inf")}}, "metadata.a"),
        ({"prompt": "x", "metadata": {"a": {1: 2}}}, "metadata.a"),
        ({"prompt": "x", "metadata": {"a": b"bytes"}}, "metadata.a"),
        ({"prompt": "x", "metadata": {"a": 2**64}}, "metadata.a"),
        ({"prompt": "x", "stages": {"work": {"options": {"t": float("nan")}}}}, "stages.work.options.t"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_wrong_field_is_named(body: dict[str, Any], param: str) -> None:
    """R55, R84: one sentence that names the field; nothing unknown, out of range or non-finite is ignored."""
    error = _refused(body)
    assert isinstance(error, InvalidRequest)
    assert error.fields["param"] == param
    assert error.status == 422
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "x" * (MAX_TEXT_BYTES + 1)}, "prompt"),
        ({"prompt": "é" * (MAX_TEXT_BYTES // 2 + 1)}, "prompt"),
        ({"prompt": "x", "instructions": "y" * MAX_TEXT_BYTES}, "prompt"),
        ({"content": [{"type": "text", "text": "x" * 600_000}] * 2}, "content"),
        ({"content": [{"type": "text", "text": "x"}] * (MAX_PARTS + 1)}, "content"),
        (
            {
                "content": [
                    {"type": "text", "text": "x"},
                    *[{"type": "image", "url": "data:image/png,"}] * (MAX_IMAGES + 1),
                ]
            },
            "content",
        ),
        ({"prompt": "x", "metadata": {"a": "y" * MAX_METADATA_BYTES}}, "metadata"),
        ({"prompt": "x", "binding": "b" * 513}, "binding"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_too_large_is_refused_with_the_bound(body: dict[str, Any], param: str) -> None:
    """R73: 413, the field and the bound; 1 byte less is taken."""
    error = _refused(body)
    assert isinstance(error, PayloadTooLarge)
    assert error.fields["param"] == param
    assert str(error.fields["bound"]) in error.message


def test_text_of_exactly_the_bound_is_taken() -> None:
    """The bound itself is allowed."""
    assert parse_request({"prompt": "x" * MAX_TEXT_BYTES}).request.prompt


@pytest.mark.parametrize("depth", [9, 50, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    """R85: a normal refusal, whatever the depth."""
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    error = _refused({"prompt": "x", "metadata": {"a": nested}})
    assert isinstance(error, InvalidRequest)
    assert error.fields["param"].startswith("metadata.a")


def test_what_no_store_can_hold_is_replaced_and_counted() -> None:
    """R44: NUL and lone surrogates become U+FFFD, in every text and key; the request isn't refused."""
    parsed = parse_request(
        {"prompt": "a\x00b\ud800c", "instructions": "\udfff", "metadata": {"k\x00": ["v\x00", {"x": "\x00"}]}}
    )
    assert parsed.request.prompt == "a\ufffdb\ufffdc"
    assert parsed.request.instructions == "\ufffd"
    assert parsed.request.metadata == {"k\ufffd": ["v\ufffd", {"x": "\ufffd"}]}
    assert parsed.text_replaced == 6
    assert parsed.request.model_dump_json()


def test_request_that_was_made_in_code_is_checked_too() -> None:
    """The embedding API's own object passes through the same gate, and keeps what it was given."""
    request = RunRequest(prompt="fix\x00", limits=LimitRequest(max_tool_rounds=3))
    parsed = parse_request(request)
    assert parsed.request.prompt == "fix\ufffd"
    assert parsed.request.limits.max_tool_rounds == 3
    assert fingerprint(parsed.request) == fingerprint(
        parse_request({"prompt": "fix\x00", "limits": {"max_tool_rounds": 3}}).request
    )
    with pytest.raises(InvalidRequest):
        parse_request(RunRequest(prompt="  "))


def test_content_parts_are_kept() -> None:
    """A picture comes as a data URL beside its text."""
    url = "data:image/png;base64,AAAA"
    request = parse_request(
        {"content": [{"type": "text", "text": "look"}, {"type": "image", "url": url}]}
    ).request
    assert request.text() == "look"
    assert request.content is not None
    assert isinstance(request.content[0], TextPart)


# ---- fingerprint


def _mark(**body: Any) -> str:
    return fingerprint(parse_request({"prompt": "x", **body}).request)


def test_fingerprint_leaves_id_and_webhook_out() -> None:
    """R63: a retry under another id, or to another address, is the same request."""
    assert _mark() == _mark(id="a") == _mark(webhook="https://example.invalid/hook")


def test_fingerprint_is_canonical() -> None:
    """R63: key order, nulls and spellings of one value don't matter."""
    assert _mark(delivery="patch") == _mark(delivery={"mode": "patch"})
    assert _mark(metadata={"a": 1, "b": 2}) == _mark(metadata={"b": 2, "a": 1})
    assert _mark(binding=None) == _mark()
    assert _mark(metadata={"a": None}) != _mark(metadata={})


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "y"},
        {"binding": "b"},
        {"model": "a:b"},
        {"limits": {"wall_clock_ms": 1}},
        {"metadata": {"a": 1}},
        {"session_id": "s"},
        {"profile": "direct"},
        {"unreviewed": True},
        {"instructions": "i"},
        {"workspace": {"ref": "w"}},
        {"stages": {"work": {"options": {"a": 1}}}},
    ],
    ids=str,
)
def test_fingerprint_tells_other_requests_apart(change: dict[str, Any]) -> None:
    """R63: any other body is another request."""
    assert _mark(**change) != _mark()
