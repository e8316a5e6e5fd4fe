"""The border that text crosses on its way into the store."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.primitives import clean_json
from remit.storage._texts import clean_name, dump_clean

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=12)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_what_is_written_can_be_kept(value: object) -> None:
    """R44: whatever goes in, the text is valid UTF-8 without NUL, and reads back as the cleaned value."""
    text, kept, replaced = dump_clean(value)
    text.encode()
    assert "\x00" not in text
    assert json.loads(text) == kept
    assert clean_json(kept)[1] == 0
    if not replaced:
        assert kept is value


@given(ANY_TEXT)
def test_each_character_is_replaced_by_one(text: str) -> None:
    """R44: the mark stands exactly where something was replaced, and the count says how often."""
    _, kept, replaced = dump_clean([text])
    (cleaned,) = kept
    assert len(cleaned) == len(text)
    changed = sum(before != after for before, after in zip(text, cleaned, strict=True))
    assert changed == replaced == sum(c == "\x00" or "\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "x\\u0000y"])
def test_a_written_out_escape_is_text(text: str) -> None:
    """Six characters that look like the escape of NUL are six characters."""
    dumped, kept, replaced = dump_clean({"a": text})
    assert (json.loads(dumped), kept, replaced) == ({"a": text}, {"a": text}, 0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_arent_finite_are_refused(number: float) -> None:
    """R84: they are never written."""
    with pytest.raises(ValueError, match="JSON"):
        dump_clean({"a": [number]})


@pytest.mark.parametrize(
    ("name", "kept"),
    [(None, None), ("call_1", "call_1"), ("a\x00", "a\ufffd"), ("\ud800", "\ufffd"), ("ü", "ü")],
)
def test_names_by_the_same_rule(name: str | None, kept: str | None) -> None:
    """R44: ids that come from a model are cleaned as text is."""
    assert clean_name(name) == kept
