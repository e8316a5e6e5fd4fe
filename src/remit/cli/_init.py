"""`remit init`: writes a remit.toml to start from."""

from __future__ import annotations

import click

_HELP = """Write a commented remit.toml at the root of the repository, with the checks that were found.

\b
  remit init              for the repository around you
  remit init -w ../app    for another one
  remit init --stdout     only print it

What it sets counts without `remit trust`. An existing file is never overwritten.
"""


@click.command(help=_HELP)
@click.option(
    "-w", "--workspace", metavar="DIR", help="The repository's folder. Default: the one around you."
)
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the file and write nothing.")
def init(workspace: str | None, to_stdout: bool) -> int:
    """Replaced by the text above."""
    from remit.cli._starting import write_file  # noqa: PLC0415 - `--help` needn't load the settings

    return write_file(workspace, to_stdout=to_stdout)
