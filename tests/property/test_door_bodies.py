"""Whatever a client of a compatible door sends: it is taken, or refused by name; never a fault of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.api.anthropic._request import read_message_request
from remit.api.openai._chat_request import read_chat_request
from remit.api.openai._responses_request import read_response_request
from remit.errors import InvalidRequest, PayloadTooLarge
from remit.requests import parse_request


def words(text: str) -> list[str]:
    return text.split()


KEYS = words(
    "role content type text name tool_calls tool_call_id call_id output arguments input function image_url "
    "url source data media_type title tool_use_id id summary thinking refusal custom file_id detail action"
)
ROLES = words("system developer user assistant tool function king")
TYPES = words(
    "text input_text output_text image image_url input_image document tool_use tool_result thinking message "
    "reasoning function_call function_call_output custom_tool_call refusal base64 url colour"
)
FIELDS = words(
    "model messages input system instructions max_tokens stream stream_options metadata user tools functions "
    "n response_format modalities text previous_response_id background store thinking output_config "
    "container conversation prompt logprobs audio include tool_choice mcp_servers safety_identifier"
)

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2_000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from([*ROLES, *TYPES, "data:image/png;base64,AA==", "http://127.0.0.1/x"]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)}, optional={key: values for key in KEYS if key != "type"}
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES)},
    optional={"content": st.one_of(values, st.lists(parts, max_size=4)), "tool_calls": st.lists(values)},
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FIELDS, values),
        "messages": st.one_of(values, st.lists(messages, max_size=5)),
        "input": st.one_of(values, st.lists(st.one_of(messages, parts), max_size=5)),
        "model": st.one_of(values, st.just("reviewed")),
        "max_tokens": st.one_of(values, st.just(9)),
    },
)

READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "chat": lambda body: read_chat_request(body).wish.fields,
    "responses": lambda body: read_response_request(body).fields,
    "messages": lambda body: read_message_request(body).wish.fields,
}


@pytest.mark.parametrize("door", READERS)
@settings(max_examples=60)
@given(body=bodies)
def test_any_body_is_taken_or_refused_by_name(door: str, body: dict[str, Any]) -> None:
    """R72, R73: only a refusal that names a field, or a request that admission can judge."""
    param: object = "none was needed"
    try:
        fields = READERS[door](body)
        parse_request({"binding": "reviewed", **fields})
    except (InvalidRequest, PayloadTooLarge) as refused:
        param = refused.fields.get("param")
    assert param
