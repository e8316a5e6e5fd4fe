"""`remit keys`: its commands and their help. What they do is in `_keyring`."""

from __future__ import annotations

import click

_HELP = """Make, list and revoke the keys of a host's callers, whether or not a host runs.

\b
  remit keys create ci --scopes run,read --max-cost 2 --expires 90d
  remit keys create ci --scopes run --bindings reviewed
  remit keys create team-b --tenant team-b --scopes run,read
  remit keys list
  remit keys revoke ci

A key belongs to a tenant and sees what is the tenant's alone. It is shown once, when it is made; what is
kept is its hash.
"""


@click.group(help=_HELP)
def keys() -> None:
    """Replaced by the text above."""


@keys.command(help="Make a key, and print it. This is the only time that it is shown.")
@click.argument("name")
@click.option("--tenant", default="local", show_default=True, help="Whose runs it starts and sees.")
@click.option("--scopes", required=True, metavar="LIST", help="Of run, read, admin, node; with commas.")
@click.option("--bindings", metavar="LIST", help="The bindings that it may use. Default: all.")
@click.option("--max-cost", metavar="USD", help="What all its runs together may cost.")
@click.option("--max-running", type=int, metavar="N", help="Its runs that go on at once; more of them wait.")
@click.option("--max-queued", type=int, metavar="N", help="Its runs that wait; one more is refused.")
@click.option("--expires", metavar="TIME", help="When it ends: 90d, 12h. Default: never.")
def create(
    name: str,
    tenant: str,
    scopes: str,
    bindings: str | None,
    max_cost: str | None,
    max_running: int | None,
    max_queued: int | None,
    expires: str | None,
) -> int:
    """Replaced by the text above."""
    from remit.cli._keyring import create_key  # noqa: PLC0415 - `--help` needn't load the store

    return create_key(
        name,
        tenant=tenant,
        scopes=scopes,
        bindings=bindings,
        max_cost=max_cost,
        max_running=max_running,
        max_queued=max_queued,
        expires=expires,
    )


@keys.command("list", help="List keys, without their secrets.")
@click.option("--tenant", help="Of one tenant. Default: of all.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each key.")
def list_(tenant: str | None, as_json: bool) -> int:
    """Replaced by the text above."""
    from remit.cli._keyring import list_keys  # noqa: PLC0415 - `--help` needn't load the store

    return list_keys(tenant=tenant, as_json=as_json)


@keys.command(help="End a key, by its name or id. A running host refuses it within a second.")
@click.argument("name")
@click.option("--tenant", default="local", show_default=True, help="Whose key it is.")
def revoke(name: str, tenant: str) -> int:
    """Replaced by the text above."""
    from remit.cli._keyring import revoke_key  # noqa: PLC0415 - `--help` needn't load the store

    return revoke_key(name, tenant=tenant)
