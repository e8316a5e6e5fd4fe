"""`remit watch`: its options and its help. What it does is in `_remote_run`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option, require_host

_HELP = """Follow a run of a host to its end. Leaving (Ctrl-C) changes nothing of it.

\b
  remit watch RUN --host http://127.0.0.1:7433
  remit watch RUN --jsonl        each event as a line of JSON

It exits as `remit run` would have.
"""


@click.command(help=_HELP)
@click.argument("run_id", metavar="RUN")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print each event as a line of JSON.")
@host_option
def watch(run_id: str, as_jsonl: bool, host: str | None) -> int:
    """Replaced by the text above."""
    from remit.cli._remote_run import watch_run  # noqa: PLC0415 - `--help` needn't load the client

    return watch_run(run_id, host=require_host(host, "`remit watch`"), as_jsonl=as_jsonl)
