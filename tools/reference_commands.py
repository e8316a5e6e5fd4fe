"""The reference page of the commands, from the command line's own definitions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click


def page_of(command: click.Command, name: str) -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands\n"]
    for path, one in _walk(command, name):
        lines.append(f"## `{path}`\n\n{_text(one.help)}\n")
        lines.append("```\n" + _usage(one, path) + "\n```\n")
        options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
        if options:
            rows = "".join(
                f"| {_names(option)} | {_meaning(option)} |\n" for option in options if not option.hidden
            )
            lines.append("| option | meaning |\n|---|---|\n" + rows)
    return "\n".join(lines)


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and, below a group, its commands by name; hidden ones left out."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _walk(inner, f"{path} {name}")


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
    return _text(option.help).replace("|", "\\|").replace("\n", " ")


def _text(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\b\n", "")
