"""Any JSON as a request: refused with a reason, or a request that can be stored."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit.errors import RequestError
from remit.primitives import clean_text, dump_json, load_json
from remit.requests import fingerprint, parse_request

TEXT = st.text(st.characters(codec=None), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["id", "binding", "prompt", "content", "limits", "delivery", "stages", "metadata", "workspace", "x"]
)


@given(body=st.dictionaries(KEYS, JSON, max_size=5))
def test_anything_is_either_refused_or_storable(body: dict[str, Any]) -> None:
    """R44, R84, R85: no other error, and what is taken survives JSON and parses to itself."""
    try:
        parsed = parse_request(body)
    except RequestError:
        return
    stored = parsed.request.model_dump(mode="json", exclude_unset=True)
    again = parse_request(load_json(dump_json(stored)))
    assert again.request == parsed.request
    assert again.text_replaced == 0
    assert fingerprint(again.request) == fingerprint(parsed.request)


@given(prompt=TEXT.filter(lambda text: text.strip() != ""), metadata=st.dictionaries(TEXT, TEXT, max_size=3))
def test_good_requests_are_taken(prompt: str, metadata: dict[str, str]) -> None:
    """R44: whatever characters they hold."""
    body = {"prompt": f"do {prompt}", "metadata": metadata}
    parsed = parse_request(body)
    cleaned, replaced = clean_text(f"do {prompt}")
    assert parsed.request.prompt == cleaned
    stored = "".join([cleaned, *parsed.request.metadata, *map(str, parsed.request.metadata.values())])
    stored.encode()  # refuses a lone surrogate
    assert "\0" not in stored
    assert parsed.text_replaced >= replaced
