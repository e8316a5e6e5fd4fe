"""`remit cancel`: its options and its help. What it does is in `_remote_run`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option, require_host

_HELP = """Stop a run of a host, and everything that it started; or one piece of its work.

\b
  remit cancel RUN --host http://127.0.0.1:7433
  remit cancel RUN.work-1.call_2  one tool call; the run goes on

It answers when everything has ended, with how each piece of work was stopped and how fast. A run in this
terminal is stopped by Ctrl-C.
"""


@click.command(help=_HELP)
@click.argument("wanted", metavar="RUN|WORK")
@click.option("--reason", metavar="TEXT", help="Why; it goes on record.")
@click.option("--wait", metavar="TIME", help="How long to wait for the end. Default: 10s; then exit 124.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
@host_option
def cancel(wanted: str, reason: str | None, wait: str | None, as_json: bool, host: str | None) -> int:
    """Replaced by the text above."""
    from remit.cli._remote_run import cancel_there  # noqa: PLC0415 - `--help` needn't load the client

    there = require_host(host, "`remit cancel`")
    return cancel_there(wanted, host=there, reason=reason, wait=wait, as_json=as_json)
