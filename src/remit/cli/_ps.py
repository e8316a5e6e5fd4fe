"""`remit ps`: lists runs. It only reads."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option

_HELP = """List runs, newest first: those that go on, and the last twenty.

\b
  remit ps              what goes on, and what was lately
  remit ps --all        every run
  remit ps --json       a line of JSON for each

It only reads: a run whose process has died is shown as it was left.
"""


@click.command(help=_HELP)
@click.option("-a", "--all", "show_all", is_flag=True, help="Every run, not only the last twenty.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each run.")
@host_option
def ps(show_all: bool, as_json: bool, host: str | None) -> int:
    """Replaced by the text above."""
    from remit.cli._listing import list_them  # noqa: PLC0415 - `--help` needn't load the store

    return list_them(show_all=show_all, as_json=as_json, host=host)
