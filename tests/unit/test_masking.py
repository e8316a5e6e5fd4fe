"""Secrets don't leave a checkout: as they are, encoded, cut in two, or in the pieces of a stream."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import NodeError
from remit.primitives import Secret
from remit.workspaces._masking import MASK, Masker, MaskingStream
from remit.workspaces._secrets import SecretDefinition, read_secrets

VALUE = "tok/en+ü-7f3a9c0d1e2f"
MASKER = Masker({"TOKEN": Secret(VALUE)})
DATA = VALUE.encode()


@pytest.mark.parametrize(
    "leak",
    [
        VALUE,
        f"x={VALUE}&y",
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE).lower(),
        json.dumps(VALUE),
        DATA.hex(),
        DATA.hex().upper(),
        *(base64.b64encode(b"u" * n + DATA + b"tail" * n).decode() for n in range(4)),
        *(base64.urlsafe_b64encode(b"u" * n + DATA).decode() for n in range(4)),
    ],
)
def test_every_way_of_writing_a_secret_is_masked(leak: str) -> None:
    """What is left holds no run of its characters."""
    masked = MASKER.mask(f"before {leak} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for form in (VALUE, DATA.hex(), "7f3a9c0d", base64.b64encode(DATA).decode()[4:16]):
        assert form.lower() not in masked.lower()


def test_base64_in_lines_is_masked() -> None:
    """`base64` wraps at 76 characters; a long secret goes over the line's end."""
    value = "".join(f"{number:04x}" for number in range(60))
    text = base64.encodebytes(b"user:" + value.encode()).decode()
    masked = Masker({"KEY": Secret(value)}).mask(text)
    assert MASK in masked
    assert len(masked) < 40


def test_lines_of_a_key_file_are_masked_one_by_one() -> None:
    """A private key of many lines is masked also where a program shows one of them."""
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nAAAA\n"
    assert Masker({"KEY": Secret(key)}).mask("line: MIIEvQIBADANBgkqhkiG") == f"line: {MASK}"


def test_short_values_and_ordinary_text_stay() -> None:
    """A value of five characters would blank ordinary words."""
    assert Masker({"PIN": Secret("1234")}).mask("1234 tests") == "1234 tests"
    assert MASKER.mask("nothing here") == "nothing here"
    assert not Masker({})


@given(st.integers(0, 40), st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_a_stream_in_any_pieces_tells_nothing(before: int, sizes: list[int]) -> None:
    """However the bytes are cut, no secret and no part that would complete one goes out; all else does."""
    whole = b"a" * before + DATA + b" middle " + DATA.hex().encode() + b"\n"
    stream = MaskingStream(MASKER)
    out, at, turn = b"", 0, 0
    while at < len(whole):
        size = sizes[turn % len(sizes)]
        out += stream.feed(whole[at : at + size])
        at, turn = at + size, turn + 1
    out += stream.feed(b"", final=True)
    assert out == MASKER.mask_bytes(whole)
    assert out == b"a" * before + MASK.encode() + b" middle " + MASK.encode() + b"\n"


@pytest.mark.parametrize("kept", range(1, len(VALUE)))
def test_a_secret_cut_by_a_bound_is_masked_on_both_sides(kept: int) -> None:
    """Output is kept as head and tail: neither may end in the better part of a secret."""
    mark = "\n[... 100 bytes left out here; 300 bytes in all ...]\n"
    masked = MASKER.mask(f"head {VALUE[:kept]}{mark}{VALUE[-kept:]} tail")
    assert mark in masked
    for part in (VALUE[:4], VALUE[-4:]):
        assert part not in masked


def test_secrets_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    """Each is given to those that it was declared for; nothing prints it."""
    (tmp_path / "key").write_text("from-a-file\n")
    definitions = [
        SecretDefinition(name="NPM_TOKEN"),
        SecretDefinition(name="DB", env="DB_URL", to=("checks", "tools")),
        SecretDefinition(name="KEY", file=tmp_path / "key", to=("tools",)),
    ]
    secrets = read_secrets(definitions, environment={"NPM_TOKEN": "npm-secret", "DB_URL": "db-secret"})
    assert secrets.environment("setup") == {"NPM_TOKEN": "npm-secret"}
    assert secrets.environment("checks") == {"DB": "db-secret"}
    assert secrets.environment("tools") == {"DB": "db-secret", "KEY": "from-a-file"}
    assert "secret" not in repr(secrets).replace("WorkspaceSecrets", "").replace("Secret", "")
    assert secrets.masker.names_in(b"see npm-secret") == ("NPM_TOKEN",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "A"}, "set the variable A"),
        ({"name": "A", "env": "B"}, "set the variable B"),
        ({"name": "A", "file": "/nowhere/key"}, "can't be read from /nowhere/key"),
        ({"name": "A", "file": "/dev/zero"}, "not a file"),
        ({"name": "A", "file": "/dev/null"}, "not a file"),
    ],
)
def test_a_missing_secret_is_named(fields: dict[str, str], words: str) -> None:
    """What isn't there is said with the place where it was looked for, before anything is spent."""
    with pytest.raises(NodeError, match=words):
        read_secrets([SecretDefinition.model_validate(fields)], environment={})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "sk-very-secret"},
        {"name": "A", "env": "sk-very secret"},
        {"name": "A", "env": "B", "file": "/x"},
        {"name": "A", "to": []},
        {"name": "A", "to": ["model"]},
        {"name": "A", "value": "inline"},
    ],
)
def test_a_secret_is_never_written_in_settings(fields: dict[str, object]) -> None:
    """There is no place for the value itself."""
    with pytest.raises(ValueError, match=r"."):
        SecretDefinition.model_validate(fields)
