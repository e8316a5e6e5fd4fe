"""`remit audit`: its help. What it does is in `_auditing`."""

from __future__ import annotations

import click

_HELP = """Show the audit record of this machine's data folder, the newest act last; no host need run.

\b
  remit audit                       the last hundred acts
  remit audit --tenant team-b       of one tenant
  remit audit --json --limit 1000   a line of JSON for each

It holds keys made and revoked, hosts that started with other settings, calls that need the scope admin, runs
that asked for more than any request may, and what became of patches: who, what, when, from where, and the
outcome. An act stays there for [host] audit_days (400), and none is ever changed; it holds no secret.
"""


@click.command(help=_HELP)
@click.option("--tenant", help="Of one tenant. Default: of all.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="How many.")
@click.option("--before", type=click.IntRange(1), metavar="ID", help="Only acts before this one.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each act.")
def audit(tenant: str | None, limit: int, before: int | None, as_json: bool) -> int:
    """Replaced by the text above."""
    from remit.cli._auditing import show_audit  # noqa: PLC0415 - `--help` needn't load the store

    return show_audit(tenant=tenant, limit=limit, before=before, as_json=as_json)
