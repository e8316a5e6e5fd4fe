"""`remit show`: its options and its help. What it does is in `_telling`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option

_HELP = """Tell the story of a run: stages, tools, checks, review, patch, delivery, bill.

\b
  remit show                 the newest run
  remit show run_01K7QD      that run; the beginning of an id is enough
  remit show RUN --json      the run as one JSON document
  remit show RUN --events    its event log, a line of JSON for each

It only reads; a run that goes on can be looked at too.
"""


@click.command(help=_HELP)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="The run as one JSON document.")
@click.option("--events", "as_events", is_flag=True, help="Its stored events, one a line.")
@click.option("-v", "--verbose", is_flag=True, help="Plan, completion and review in full.")
@host_option
def show(run_id: str | None, as_json: bool, as_events: bool, verbose: bool, host: str | None) -> int:
    """Replaced by the text above."""
    from remit.cli._telling import tell  # noqa: PLC0415 - `--help` needn't load the store

    if as_json and as_events:
        raise click.UsageError("--json and --events exclude each other")
    return tell(run_id, as_json=as_json, as_events=as_events, verbose=verbose, host=host)
