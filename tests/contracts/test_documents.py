"""The pages: short where they must be, right where the code can say so."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import check_docs
import reference_commands
import reference_settings
from remit import contract, errors
from remit.config._schema import FileShape
from remit.events import EPHEMERAL_TYPES, PAYLOADS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(check_docs.LENGTHS))
def test_a_first_page_is_short(name: str) -> None:
    """README and AGENTS.md are read whole or not at all."""
    assert check_docs.length_problems(Path(name), (ROOT / name).read_text()) == []


def test_the_change_log_keeps_its_form() -> None:
    """One sentence an entry, below a kind, below a release."""
    assert check_docs.change_log_problems((ROOT / "CHANGELOG.md").read_text()) == []


def test_each_error_code_has_its_line() -> None:
    """Whoever meets a code can look it up."""
    page = (REFERENCE / "errors.md").read_text()
    kinds = [getattr(errors, name) for name in errors.__all__]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.RemitError)}
    assert {code for code in codes if f"| `{code}` |" not in page} == set()


def test_each_end_has_its_line() -> None:
    """Every class and code that a run can end with is listed with its sentence."""
    page = (REFERENCE / "errors.md").read_text()
    ends = [
        (class_, code, words) for class_, codes in contract.CODES.items() for code, words in codes.items()
    ]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [
        end for end in ends if not any(f"`{end[0]}` | `{end[1]}`" in row and end[2] in row for row in rows)
    ] == []


def test_each_event_has_its_line() -> None:
    """Stored and ephemeral events are all on the page."""
    page = (REFERENCE / "events.md").read_text()
    assert {name for name in {*PAYLOADS, *EPHEMERAL_TYPES} if f"`{name}`" not in page} == set()


def test_each_limit_has_its_line() -> None:
    """Every limit is listed with its default."""
    page = (REFERENCE / "limits.md").read_text()
    assert {name for name in contract.Limits.model_fields if page.count(f"| `{name}` |") != 2} == set()


def test_each_setting_has_its_line() -> None:
    """Every key of every table that a file may have is listed, and no top-level table is forgotten."""
    page = (REFERENCE / "settings.md").read_text()
    tables = list(reference_settings.tables_of(FileShape, reference_settings.OWNERS))
    assert {place.split(".")[0] for place, _ in tables} == set(FileShape.model_fields)
    for place, model in tables:
        section = page[page.index(f"`{place}`") :]
        names = {field.alias or name for name, field in model.model_fields.items()}
        if model in reference_settings.NAMED_BY_KEY:
            names.discard("name")
        assert {name for name in names if f"| `{name}` |" not in section} == set()


def test_each_command_has_its_line() -> None:
    """Every command and every option that isn't hidden is on the page."""
    if not reference_commands.is_written():
        return  # nothing to describe yet; the entry point's own test fails without it
    page = (REFERENCE / "commands.md").read_text()
    for path, command in reference_commands.walk(reference_commands.root_command(), "remit"):
        section = page[page.index(f"## `{path}`\n") :]
        options = [known for known in command.params if isinstance(known, click.Option) and not known.hidden]
        assert [option.opts for option in options if f"`{option.opts[0]}`" not in section] == []
