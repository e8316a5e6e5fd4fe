"""`remit patch`: its options and its help. What it does is in `_patching` and `_printing`."""

from __future__ import annotations

import click

from remit.cli._host_option import host_option

_HELP = """Print a run's patch, or deliver it.

\b
  remit patch                     the newest run's patch, in colours
  remit patch RUN > fix.patch     as git writes patches, byte for byte
  remit patch RUN --apply         apply it to the workspace, all or nothing
  remit patch RUN --apply --3way  merge with what changed since, check, apply
  remit patch RUN --branch NAME   put it on a new branch, as a commit
  remit patch RUN --discard       let it never be applied

Every file that it touches must still be as it was when the run began; else nothing is applied. With --3way
what you changed since is merged with it, line by line and all or nothing, and the workspace's checks run once
more before anything is applied: nobody has reviewed what comes of it. `remit undo` takes each of these back.
Of a run that failed or was cancelled the patch is the work as far as it got. With --host a run that waits for
approval is approved by --apply, or ended without a delivery by --discard.
"""


@click.command(help=_HELP)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--apply", is_flag=True, help="Apply it to the workspace's files.")
@click.option("--branch", metavar="NAME", help="Put it on a new branch of the workspace's repository.")
@click.option(
    "--3way",
    "three_way",
    is_flag=True,
    help="With --apply: merge it with files that were changed since, if the checks are then no worse.",
)
@click.option("--discard", is_flag=True, help="Let it never be applied.")
@click.option("--stat", is_flag=True, help="Only which files, and how many lines.")
@click.option("--unreviewed", is_flag=True, help="Deliver it although no review has passed it.")
@click.option("--allow-protected", is_flag=True, help="Apply it although it touches protected paths.")
@host_option
def patch(
    run_id: str | None,
    apply: bool,
    branch: str | None,
    three_way: bool,
    discard: bool,
    stat: bool,
    unreviewed: bool,
    allow_protected: bool,
    host: str | None,
) -> int:
    """Replaced by the text above."""
    delivers = apply or branch is not None
    if apply + discard + (branch is not None) > 1:
        raise click.UsageError("--apply, --branch and --discard exclude each other")
    if not delivers and (unreviewed or allow_protected):
        raise click.UsageError("--unreviewed and --allow-protected go with --apply or --branch")
    if three_way and (not apply or host):
        raise click.UsageError("--3way goes with --apply, on this machine")
    if stat and (delivers or discard):
        raise click.UsageError("--stat goes with none of --apply, --branch and --discard")
    if not (delivers or discard):
        from remit.cli import _printing  # noqa: PLC0415 - `--help` needn't load the store

        return _printing.print_patch(run_id, stat=stat, host=host)
    if run_id is None:
        raise click.UsageError("name the run whose patch is meant; `remit ps` lists them")
    if three_way:
        from remit.cli._merging import merge_here  # noqa: PLC0415 - `--help` needn't load the node

        return merge_here(run_id, unreviewed=unreviewed, allow_protected=allow_protected)
    return _act(run_id, branch, discard, unreviewed, allow_protected, host)


def _act(
    run_id: str, branch: str | None, discard: bool, unreviewed: bool, allow_protected: bool, host: str | None
) -> int:
    from remit.cli import _patching  # noqa: PLC0415 - `--help` needn't load the host
    from remit.host import ByHand  # noqa: PLC0415

    if discard:
        return _patching.discard_there(run_id, host=host) if host else _patching.discard_here(run_id)
    wanted = ByHand(branch=branch, unreviewed=unreviewed, allow_protected=allow_protected)
    if host:
        return min(1, _patching.deliver_there(run_id, wanted, host=host))
    return min(1, _patching.deliver_here(run_id, wanted))
