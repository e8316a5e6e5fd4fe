"""`--host`, for every command that can ask a host in place of this machine's own data folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def host_option(command: _Command) -> _Command:
    """Give a command the option."""
    option = click.option(
        "--host",
        envvar="REMIT_HOST",
        metavar="URL",
        help="Ask this host, such as http://127.0.0.1:7433, in place of this machine's data folder.",
    )
    return option(command)


def require_host(host: str | None, what: str) -> str:
    """The host, for what can't be done without one.

    Raises:
        click.UsageError: None is named.
    """
    if not host:
        raise click.UsageError(f"{what} needs a host: say --host URL, or set REMIT_HOST")
    return host
