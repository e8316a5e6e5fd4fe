"""Replies are kept: whatever a provider put into them, they can be stored, sent back and shown."""

from __future__ import annotations

from typing import Any, cast

import pytest

from remit.contract import AttemptUsage
from remit.models import (
    AssistantMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    message_from_json,
    message_to_json,
)
from remit.models._attempt import Broken, Completed
from remit.models._storable import as_storable
from remit.primitives import dump_json, load_json

USAGE = AttemptUsage(coverage="reported", input_tokens=10, output_tokens=5, total_tokens=15)


def completed(*blocks: Any) -> Completed:
    return Completed(message=AssistantMessage(blocks=blocks, model="a:b"), finish="stop", usage=USAGE)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_what_is_sound_is_left_alone() -> None:
    """R29, R30: signatures, details and texts go into the store as they came, white space and all."""
    outcome = completed(
        ThinkingBlock(text=" a \u2028", signature="sig+/=", provider="p", details={"item": {"n": 2**70}}),
        TextBlock(text="  b\n ", provider="p", details={"id": "msg_1"}),
        ToolCallBlock(
            tool_call_id="c", name="run", arguments='{"a": 1e999', provider="p", details={"x": 0.5}
        ),
    )
    assert as_storable(outcome) is outcome


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have(odd: float) -> None:
    """R84: a signature, or a number somewhere in opaque details, that isn't JSON is null from then on."""
    kept = as_storable(
        completed(
            ThinkingBlock(text="a", signature=cast("str", odd), details={"reasoning": [{"signature": odd}]}),
            ToolCallBlock(tool_call_id="c", name="run", arguments="{}", details={"deep": {"er": odd}}),
        )
    )
    assert isinstance(kept, Completed)
    assert message_from_json(load_json(dump_json(message_to_json(kept.message)))) == kept.message
    thought, call = kept.message.blocks
    assert (thought.details, call.details) == ({"reasoning": [{"signature": None}]}, {"deep": {"er": None}})


def test_characters_that_no_store_can_hold() -> None:
    """R44: NUL and lone surrogates are replaced in every text of a reply, keys of opaque details too."""
    kept = as_storable(
        completed(
            TextBlock(text="a\0", details={"k\ud800": ["\0"]}),
            ThinkingBlock(text="\ud800", signature="s\0"),
            ToolCallBlock(tool_call_id="c\0", name="n\ud800", arguments='{"a": "\0"}'),
        )
    )
    assert isinstance(kept, Completed)
    text = dump_json(message_to_json(kept.message))
    text.encode()
    assert "\\u0000" not in text
    assert kept.message.text == "a\ufffd"


@pytest.mark.parametrize(
    "block",
    [
        TextBlock(text="a", details=nested(200)),
        TextBlock(text=cast("str", 7)),
        ThinkingBlock(text=cast("str", None)),
        ToolCallBlock(tool_call_id=cast("str", 7), name="run", arguments="{}"),
        ToolCallBlock(tool_call_id="c", name=cast("str", None), arguments="{}"),
        ToolCallBlock(tool_call_id="c", name="run", arguments=cast("str", {})),
    ],
)
def test_what_cannot_be_kept_is_a_broken_reply(block: Any) -> None:
    """R85: fields nested without end, or texts that are none, are the provider's fault; the bill is known."""
    broken = as_storable(completed(block))
    assert isinstance(broken, Broken)
    assert (broken.reason, broken.retryable, broken.usage) == ("protocol", True, USAGE)
