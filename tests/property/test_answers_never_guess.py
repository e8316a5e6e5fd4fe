"""Reading answers: total, and never more generous than the rule."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from remit.contract import StageKind
from remit.stages import DECISIONS, SHAPES, Invalid, Valid, read_arguments, read_text
from remit.stages._answers import is_blank

KINDS = st.sampled_from(("plan", "work", "review"))
STORABLE = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
VISIBLE = STORABLE.filter(lambda text: not is_blank(text))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def answers(kind: StageKind) -> st.SearchStrategy[dict[str, str]]:
    keys = dict.fromkeys(SHAPES[kind].keys, VISIBLE)
    if kind == "review":
        keys["decision"] = st.sampled_from(DECISIONS)
    return st.fixed_dictionaries(keys)


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), answers(kind))), st.booleans(), st.booleans())
def test_every_well_formed_answer_is_read_back_verbatim(
    answer: tuple[StageKind, dict[str, str]], ascii_: bool, fenced: bool
) -> None:
    """S20, R82: what the model wrote is what comes out, in whatever way the JSON was written."""
    kind, fields = answer
    text = json.dumps(fields, ensure_ascii=ascii_)
    assert read_arguments(kind, text) == Valid(fields=fields)
    assert read_text(kind, f"```json\n{text}\n```" if fenced else text) == Valid(fields=fields)


@given(KINDS, st.text() | st.text(alphabet='{}[]",:\\`json \n1eNaI'))
def test_any_text_is_valid_or_has_a_short_reason(kind: StageKind, text: str) -> None:
    """R83, R85: no text makes the reader fail, and what is valid has exactly the keys, as strings."""
    for answer in (read_text(kind, text), read_arguments(kind, text)):
        match answer:
            case Valid():
                assert list(answer.fields) == list(SHAPES[kind].keys)
            case Invalid():
                assert 0 < len(answer.reason) < 1_000
                assert answer.reason.isprintable()


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), answers(kind))), st.data())
def test_one_wrong_value_spoils_the_answer(
    answer: tuple[StageKind, dict[str, str]], data: st.DataObject
) -> None:
    """R87, R83: whatever isn't a string where a string belongs is invalid, never made to fit."""
    kind, fields = answer
    key = data.draw(st.sampled_from(sorted(fields)))
    value = data.draw(VALUES.filter(lambda value: not isinstance(value, str)))
    assert isinstance(read_text(kind, json.dumps(fields | {key: value})), Invalid)


@given(answers("review"), VISIBLE)
def test_only_a_written_pass_passes(fields: dict[str, str], word: str) -> None:
    """R83, S27: no other word is read as a decision."""
    if word not in DECISIONS:
        assert isinstance(read_text("review", json.dumps(fields | {"decision": word})), Invalid)


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), answers(kind))), VISIBLE, st.booleans())
def test_words_around_the_object_spoil_it(
    answer: tuple[StageKind, dict[str, str]], words: str, before: bool
) -> None:
    """R82, S29: nothing but white space may stand around the object."""
    kind, fields = answer
    text = json.dumps(fields)
    whole = f"{words}\n{text}" if before else f"{text}\n{words}"
    stripped = words.strip(" \t\r\n\ufeff")
    if stripped:
        assert isinstance(read_text(kind, whole), Invalid)
