"""`remit doctor`: says whether a run would work here."""

from __future__ import annotations

import click

_HELP = """Say whether a run would work here, and the one command for each thing that is missing.

\b
  remit doctor            for the repository around you
  remit doctor -w ../app
  remit doctor --sandbox  attack the sandbox: does it hold? (30 s at most)

It looks at Python, git, the data folder, settings, sandbox and isolation, toolchains, providers and their
keys (whether they are set, never what they are). Exit code 1: a run wouldn't work.
"""


@click.command(help=_HELP)
@click.option("-w", "--workspace", metavar="DIR|REF", help="The folder or workspace a run would work in.")
@click.option("--sandbox", is_flag=True, help="Try attacks from inside the sandbox; 0 when it holds.")
def doctor(workspace: str | None, sandbox: bool) -> int:
    """Replaced by the text above."""
    if sandbox:
        from remit.cli._attacking import examine_sandbox  # noqa: PLC0415 - as below

        return examine_sandbox(workspace)
    from remit.cli._examining import examine  # noqa: PLC0415 - `--help` needn't load the node

    return examine(workspace)
