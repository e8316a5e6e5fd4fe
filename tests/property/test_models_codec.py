"""Messages survive their transcript."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.models import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    message_from_json,
    message_to_json,
)

TEXT = st.text(max_size=20)
MAYBE = st.none() | TEXT
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
DETAILS = st.none() | st.dictionaries(TEXT, VALUES, max_size=3)
BLOCKS = st.one_of(
    st.builds(TextBlock, text=TEXT, provider=MAYBE, details=DETAILS),
    st.builds(ThinkingBlock, text=TEXT, signature=MAYBE, provider=MAYBE, details=DETAILS),
    st.builds(ToolCallBlock, tool_call_id=TEXT, name=TEXT, arguments=TEXT, provider=MAYBE, details=DETAILS),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(SystemMessage, text=TEXT),
    st.builds(UserMessage, text=TEXT, images=st.lists(TEXT, max_size=2).map(tuple)),
    st.builds(AssistantMessage, blocks=st.lists(BLOCKS, max_size=4).map(tuple), model=TEXT),
    st.builds(
        ToolResultsMessage,
        results=st.lists(
            st.builds(ToolResult, tool_call_id=TEXT, name=TEXT, content=TEXT, status=TEXT), max_size=3
        ).map(tuple),
        note=MAYBE,
    ),
)


@given(MESSAGES)
def test_models_message_round_trip(message: Message) -> None:
    """R30: blocks are stored as received, opaque fields too."""
    stored = json.loads(json.dumps(message_to_json(message)))
    assert message_from_json(stored) == message


@pytest.mark.parametrize(
    "body",
    [{}, {"role": "tool"}, {"role": "bard", "text": ""}, {"role": "assistant", "model": "", "blocks": [{}]}],
)
def test_models_what_is_no_message_is_refused(body: dict[str, object]) -> None:
    """A stored record of another shape is an error, never half a message."""
    with pytest.raises(ValueError, match="not a stored message"):
        message_from_json(body)
