"""The settings that the how-to pages show can be loaded as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remit.config import load_config
from remit.config._trust import _WORKSPACE_KEYS

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
BLOCKS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in ("environments.md", "sandbox.md")
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", (PAGES / name).read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_shown_file_is_a_file_that_loads(tmp_path: Path, block: str) -> None:
    """Nothing is refused, and what it sets is there."""
    (tmp_path / "remit.toml").write_text(block)
    config = load_config(environment={"HOME": str(tmp_path)}, named=tmp_path / "remit.toml", folder=tmp_path)
    keys = {line.partition("=")[0].strip() for line in block.splitlines() if line[:1].isalpha()}
    assert keys <= config.workspaces["app"].model_fields_set


def test_the_page_of_environments_shows_settings() -> None:
    """There are blocks to be looked at."""
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("name", ["checks.md", "environments.md"])
def test_the_page_says_what_counts_only_when_trusted(name: str) -> None:
    """Every setting that a page shows and a repository's own file can't set is named as such, no other."""
    text = (PAGES / name).read_text()
    shown = set(re.findall(r"^`?(\w+) = |(?<=`)(\w+) = ", text, re.MULTILINE))
    told, found, _ = text.partition(" only in a file of your own")
    assert found
    named = set(re.findall(r"`(\w+)`", told.rpartition("\n\n")[2]))
    assert named == {block or inline for block, inline in shown} - _WORKSPACE_KEYS
