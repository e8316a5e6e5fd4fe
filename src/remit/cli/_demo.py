"""`remit demo`: its help. What it does is in `_showing`."""

from __future__ import annotations

import click

_HELP = """Watch a real run on a small repository.

\b
  remit demo            about ten seconds; no key, no container
  remit show            afterwards: the last run, step by step

It makes a small repository with a failing test in a temporary folder and asks for it to be fixed: plan, work
in a sandboxed copy, checks, review, and the patch applied. Then it asks again and cancels in the middle of a
command, and shows that nothing changed and nothing is left running. The model plays a script; all else is
real. It exits with 0 only when all of what it shows was found to be so.
"""


@click.command(help=_HELP)
def demo() -> int:
    """Replaced by the text above."""
    from remit.cli._showing import show_it  # noqa: PLC0415 - `--help` needn't load the host

    return show_it()
