"""Help is read at a terminal of 80 columns."""

from __future__ import annotations

import click
import pytest

from remit.cli._program import main, program


@pytest.mark.parametrize("name", sorted(program.list_commands(click.Context(program))))
def test_what_help_tells_is_wrapped(name: str) -> None:
    """S55: all of it fits into 80 columns, the examples too."""
    above = click.Context(program, info_name="remit", max_content_width=80, terminal_width=80)
    command = program.get_command(above, name)
    assert command is not None
    with click.Context(command, info_name=name, parent=above, terminal_width=80) as context:
        told = command.get_help(context).splitlines()
    assert [line for line in told if len(line) > 80] == []


@pytest.mark.parametrize("words", [[], ["keys"], ["bench"]], ids=" ".join)
def test_a_groups_name_alone_shows_its_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help keeps its lines where nothing was asked for; the exit code says that nothing was done."""
    assert main(words) == 2
    output, errors = capsys.readouterr()
    assert not output
    assert errors.startswith("Usage: remit")
    assert "\nCommands:\n" in errors
