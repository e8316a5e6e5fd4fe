"""The reference page of the commands, from the command line's own definitions."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

ROOM = "remit.cli"


def is_written() -> bool:
    """Whether there is a command line yet."""
    return find_spec(ROOM) is not None


def root_command() -> click.Group:
    """The group below which all commands are: the one that `remit.cli` shows.

    Raises:
        LookupError: It shows none.
    """
    shown = vars(import_module(ROOM)).values()
    for value in shown:
        if isinstance(value, click.Group):
            return value
    raise LookupError(f"{ROOM} shows no click.Group: export the root command from its __init__")


def commands_page() -> str:
    """Every command of the program."""
    return page_of(root_command(), "remit")


def page_of(command: click.Command, name: str) -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands\n"]
    for path, one in walk(command, name):
        lines.append(f"## `{path}`\n\n{_text(one.help)}\n")
        lines.append("```\n" + _usage(one, path) + "\n```\n")
        options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
        if options:
            rows = "".join(
                f"| {_names(option)} | {_meaning(option)} |\n" for option in options if not option.hidden
            )
            lines.append("| option | meaning |\n|---|---|\n" + rows)
    return "\n".join(lines)


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and, below a group, its commands by name; hidden ones left out."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from walk(inner, f"{path} {name}")


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    return " ".join([path, *command.collect_usage_pieces(context)])


def _names(option: click.Option) -> str:
    names = " ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag or option.count else f" `{_kind(option)}`"
    return (names + kind).replace("|", "\\|")


def _kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        choices: Any = option.type.choices
        return "|".join(str(choice) for choice in choices)
    return option.metavar or option.type.name.upper()


def _meaning(option: click.Option) -> str:
    return " ".join((option.help or "").split()).replace("|", "\\|")


def _text(text: str | None) -> str:
    """A help text as Markdown: what the command line must not re-wrap becomes a block."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(_block(part) if part.startswith("\b\n") else part for part in paragraphs)


def _block(paragraph: str) -> str:
    return "```\n" + textwrap.dedent(paragraph.removeprefix("\b\n")) + "\n```"
