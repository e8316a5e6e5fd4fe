"""`remit patch`: its options and its help. What it does is in `_patching`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option

_HELP = """Print a run's patch, or apply it.

\b
  remit patch                    the newest run's patch, in colour on a terminal
  remit patch RUN > fix.patch    as git writes patches, byte for byte
  remit patch RUN --apply        apply it to the workspace, all or nothing

Every file that it touches must still be as it was when the run began; else nothing is applied. `remit undo`
takes it back.
"""


@click.command(help=_HELP)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--apply", is_flag=True, help="Apply it to the workspace's files.")
@click.option("--stat", is_flag=True, help="Only which files, and how many lines.")
@click.option("--unreviewed", is_flag=True, help="Apply it although no review has passed it.")
@click.option("--allow-protected", is_flag=True, help="Apply it although it touches protected paths.")
@host_option
def patch(
    run_id: str | None,
    apply: bool,
    stat: bool,
    unreviewed: bool,
    allow_protected: bool,
    host: str | None,
) -> int:
    """Replaced by the text above."""
    from remit.cli import _patching  # noqa: PLC0415 - `--help` needn't load the store

    if not apply and (unreviewed or allow_protected):
        raise click.UsageError("--unreviewed and --allow-protected go with --apply")
    if apply and stat:
        raise click.UsageError("--apply and --stat exclude each other")
    if apply:
        if run_id is None:
            raise click.UsageError("name the run whose patch is to be applied; `remit ps` lists them")
        if host:
            return _patching.deliver_there(
                run_id, host=host, unreviewed=unreviewed, allow_protected=allow_protected
            )
        return _patching.apply_patch(run_id, unreviewed=unreviewed, allow_protected=allow_protected)
    return _patching.print_patch(run_id, stat=stat, host=host)
