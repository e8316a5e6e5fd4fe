"""`remit trust`: lets a repository's own remit.toml count in full."""

from __future__ import annotations

from pathlib import Path

import click

_HELP = """Let a remit.toml inside a repository set what only your own settings may set.

\b
  remit trust --show             what the nearest file sets, and what it may
  remit trust                    trust that file as it is now
  remit trust ../app/remit.toml  trust another one

Whoever can push to a repository can write that file: read it first. The trust is for exactly these bytes;
after a change it is asked for again.
"""


@click.command(help=_HELP)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--show", "only_show", is_flag=True, help="Only look; trust nothing.")
def trust(file: Path | None, only_show: bool) -> int:
    """Replaced by the text above."""
    from remit.cli._trusting import trust_file  # noqa: PLC0415 - `--help` needn't load the settings

    return trust_file(file, only_show=only_show)
