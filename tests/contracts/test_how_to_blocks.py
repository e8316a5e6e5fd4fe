"""What the pages show can be typed: settings load as they stand there, commands and their options exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from remit.cli import program
from remit.config import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/how-to/*.md")), *sorted(ROOT.glob("docs/tutorial/*.md"))]
_TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
TOML = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(_TOML.findall(page.read_text()))
]
_TYPED = re.compile(r"^(?:\$ )?(remit [^\n|;&#]*)|`(remit [^`]*)`", re.MULTILINE)
_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z0-9-]*|-[a-z])(?=[\s=]|\Z)")


@pytest.mark.parametrize("block", TOML)
def test_a_shown_file_loads(tmp_path: Path, block: str) -> None:
    """Every key of every table is one that a file may have, with a value that it may have."""
    (tmp_path / "remit.toml").write_text(block)
    load_config(environment={"HOME": str(tmp_path)}, named=tmp_path / "remit.toml", folder=tmp_path)


def commands() -> dict[str, set[str]]:
    """Each command as it is typed, and its options."""
    root = program
    found: dict[str, set[str]] = {}

    def look(command: click.Command, name: str) -> None:
        options = {option for parameter in command.params for option in parameter.opts}
        found[name] = options | {"--help", "-h", "--version"}
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner in command.list_commands(context):
                made = command.get_command(context, inner)
                assert made is not None
                look(made, f"{name} {inner}")

    look(root, "remit")
    return found


def test_every_command_on_the_pages_is_there() -> None:
    """A command, its own command and each option that a page shows exist as they are written there."""
    known = commands()
    wrong: list[str] = []
    seen = 0
    for page in PAGES:
        for plain, quoted in _TYPED.findall(page.read_text()):
            typed = (plain or quoted).replace("\n", " ")
            words = typed.split()
            name = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in known), "remit")
            unquoted = re.sub(r"\"[^\"]*\"|'[^']*'", "X", typed)
            options = set(_OPTION.findall(unquoted))
            is_command = len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]) is not None
            seen += 1
            if (is_command and name == "remit") or not options <= known[name]:
                wrong.append(f"{page.name}: {typed.strip()}: {sorted(options - known[name])}")
    assert not wrong, "\n".join(wrong)
    assert seen > 100
