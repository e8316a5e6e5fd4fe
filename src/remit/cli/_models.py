"""`remit models`: which models a run could ask, and what is known of each."""

from __future__ import annotations

from pathlib import Path

import click

_HELP = """Say which models a run could ask here, and what is known of each.

\b
  remit models             what is configured, else what a run would take
  remit models --json      a line of JSON for each, with all that is known
  remit models --config F  by another file

Each provider is asked for its list, once; no model is asked anything, so it costs nothing. What neither
the provider nor Remit knows is shown as `?`. Exit code 1: a member of a pool can't be reached.
"""


@click.command(help=_HELP)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each model.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Settings from this file alone.",
)
@click.option("-w", "--workspace", metavar="DIR|REF", help="The folder or workspace a run would work in.")
def models(as_json: bool, config_file: Path | None, workspace: str | None) -> int:
    """Replaced by the text above."""
    from remit.cli._surveying import survey  # noqa: PLC0415 - `--help` needn't load the settings

    return survey(as_json=as_json, config_file=config_file, workspace=workspace)
