"""`remit top`: its options and its help. What it does is in `_watching_host`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option, require_host

_HELP = """Watch what a host does now: its nodes, its runs, and below each run the work that goes on.

\b
  remit top --host http://127.0.0.1:7433  live; Ctrl-C ends it, and only it
  remit top --once                        one picture
  remit top --once --json                 the same, as one document

Where stdout is no terminal it prints one picture and ends. `remit cancel WORK` stops what is shown.
"""


@click.command(help=_HELP)
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON; needs --once.")
@host_option
def top(once: bool, as_json: bool, host: str | None) -> int:
    """Replaced by the text above."""
    if as_json and not once:
        raise click.UsageError("--json is one picture: say --once as well")
    from remit.cli._watching_host import watch_host  # noqa: PLC0415 - `--help` needn't load the client

    return watch_host(require_host(host, "`remit top`"), once=once, as_json=as_json)
