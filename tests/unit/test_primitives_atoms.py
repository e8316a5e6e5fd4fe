"""The atoms: ids, times, money, strict JSON, text, secrets."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remit.primitives import (
    Redactor,
    Secret,
    StrictJsonError,
    SystemIds,
    clean_text,
    dump_json,
    escape_separators,
    format_time,
    is_run_id,
    load_json,
    micros_from_usd,
    parse_time,
    usd_from_micros,
)


def test_ids_are_unique_and_sort_by_time() -> None:
    """An id is a prefix and 26 characters; a later millisecond sorts later."""
    ids = {SystemIds().new("run") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_run_id(new) and len(new) == 30 for new in ids)


@pytest.mark.parametrize("text", ["", "a b", "a/b", "ä", "a\n", "x" * 129, "../x"])
def test_what_is_no_run_id(text: str) -> None:
    """[A-Za-z0-9_-]{1,128} and nothing else."""
    assert not is_run_id(text)


def test_times_are_aware() -> None:
    """A moment has a zone; it is stored in UTC."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-01-02T01:04:05.000006Z"
    assert parse_time(format_time(moment)) == moment
    with pytest.raises(ValueError, match="without a zone"):
        parse_time("2026-01-02T01:04:05")
    assert parse_time("2026-01-02T01:04:05Z").tzinfo == UTC


@given(st.integers(min_value=0, max_value=10**15))
def test_money_is_exact(micros: int) -> None:
    """Whole micro-USD survive the way to JSON and back."""
    assert micros_from_usd(Decimal(str(usd_from_micros(micros)))) == micros


def test_money_is_rounded_up_and_finite() -> None:
    """A part of a micro-USD counts as one; NaN isn't money (R84)."""
    assert micros_from_usd("0.0000001") == 1
    for wrong in ("nan", "inf", "-inf"):
        with pytest.raises(ValueError, match="not an amount"):
            micros_from_usd(wrong)


REFUSED = [
    "NaN",
    "[Infinity]",
    '{"x": -Infinity}',
    "1e999",
    '{"verdict":"reject","verdict":"approve"}',
    "[" * 100_000,
    "9" * 5_000,
    "{",
    '{"a":1}{"b":2}',
    "",
    '"\x01"',
]


@pytest.mark.parametrize("text", REFUSED)
def test_strict_json_refuses(text: str) -> None:
    """R84, R85: not finite, doubled keys, too deep, too long numbers, not one value: a short reason each."""
    with pytest.raises(StrictJsonError) as caught:
        load_json(text)
    assert len(str(caught.value)) < 200


def test_big_integers_are_exact() -> None:
    """R85: an integer comes through end to end."""
    assert load_json("2512292042121000001") == 2512292042121000001


def test_depth_is_counted_outside_strings() -> None:
    """Brackets inside a string don't nest."""
    assert load_json(json.dumps("[" * 1_000)) == "[" * 1_000
    assert load_json('"\\"' + "[" * 200 + '"') == '"' + "[" * 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_goes_round(value: object) -> None:
    """R44, R70: what is written is one line, without separators that split it, and reads back the same."""
    try:
        text = dump_json(value)
        text.encode()
    except UnicodeEncodeError:
        return
    assert len(text.splitlines()) <= 1
    assert load_json(text) == value


def test_not_finite_is_never_written() -> None:
    """R84: NaN doesn't go out."""
    with pytest.raises(ValueError, match="JSON compliant"):
        dump_json({"x": float("nan")})


@given(st.text(st.characters(codec=None)))  # without a codec: lone surrogates too
@example("a\0b\ud800c\udfffd\udbff\udc00")
def test_clean_text_can_be_stored(text: str) -> None:
    """R44: NUL and lone surrogates become U+FFFD, and are counted; nothing else changes."""
    cleaned, replaced = clean_text(text)
    cleaned.encode()  # refuses a lone surrogate
    assert "\0" not in cleaned
    assert len(cleaned) == len(text)
    assert replaced == sum(before != after for before, after in zip(text, cleaned, strict=True))


def test_separators_are_escaped() -> None:
    """R70: the separators of Unicode and of old terminals are written as escapes: the same JSON."""
    text = json.dumps("x\u0085y\u2028z\u2029w\u000bv", ensure_ascii=False)
    assert json.loads(escape_separators(text)) == "x\u0085y\u2028z\u2029w\u000bv"
    assert len(escape_separators(text).splitlines()) == 1


def test_secrets_do_not_show() -> None:
    """R79: a secret prints as a mask, in every way of printing, and can't be pickled."""
    secret = Secret("sk-very-secret")
    assert f"{secret} {secret!r} {secret!s} {[secret]}".count("[redacted]") == 4
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "sk-very-secret"


def test_known_secrets_are_masked() -> None:
    """R79: known values are masked wherever they stand, the longest first; short words are left alone."""
    redactor = Redactor([Secret("sk-abc"), "sk-abc-long", "k7"])
    assert redactor.mask("a sk-abc-long b sk-abc c k7") == "a [redacted] b [redacted] c k7"
