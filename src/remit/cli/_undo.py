"""`remit undo`: takes back what a run applied."""

from __future__ import annotations

import click

_HELP = """Take back what a run applied, and remove the branches that were made of its patch.

\b
  remit undo RUN

Every file must still hold what the run put there; else nothing is taken back, and the files that differ are
named. Content, modes and removed files come back as they were; the run's record stays. A branch that has
moved on since, or is checked out, stays too.
"""


@click.command(help=_HELP)
@click.argument("run_id", metavar="RUN")
def undo(run_id: str) -> int:
    """Replaced by the text above."""
    from remit.cli._patching import undo_patch  # noqa: PLC0415 - `--help` needn't load the store

    return undo_patch(run_id)
