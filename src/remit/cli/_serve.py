"""`remit serve`: its options and its help. What it does is in `_serving`."""

from __future__ import annotations

from pathlib import Path

import click

_HELP = """Run a host: runs are started, followed and stopped over HTTP until a signal comes.

\b
  remit serve                   the repository around you, on 127.0.0.1:7433
  remit serve --config /etc/remit/remit.toml
  remit serve --listen 0.0.0.0:7433 --allow-plain-http  behind a TLS proxy

stdout gets the address once the host is ready, and nothing else. The first key is made at the first start
and lies in the data folder, where `remit --host` finds it; `remit keys create` makes others.

SIGTERM or Ctrl-C: no more work is taken (503), what runs may go on for `[host] drain_ms`, is then
cancelled, and the process exits 0. A second one ends everything at once.
"""


@click.command(help=_HELP)
@click.option(
    "--listen", metavar="HOST:PORT", help="Where to listen. Default: 127.0.0.1:7433. Port 0: a free one."
)
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    help="Folder to work in. Default: the configured workspaces, else the repository around you.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A remit.toml to use in place of the one found upwards.",
)
@click.option("--drain", metavar="TIME", help="How long runs may go on after the first signal. Default: 30s.")
@click.option(
    "--allow-plain-http",
    is_flag=True,
    help="Serve an address that others can reach without TLS.",
)
@click.option("--allow-unconfined", is_flag=True, help="Run commands without a sandbox where there is none.")
def serve(
    listen: str | None,
    workspace: str | None,
    config_file: Path | None,
    drain: str | None,
    allow_plain_http: bool,
    allow_unconfined: bool,
) -> int:
    """Replaced by the text above."""
    from remit.cli._serving import ServeOptions, run_server  # noqa: PLC0415 - `--help` needn't load the host

    return run_server(
        ServeOptions(
            listen=listen,
            workspace=workspace,
            config_file=config_file,
            drain=drain,
            allow_plain_http=allow_plain_http,
            allow_unconfined=allow_unconfined,
        )
    )
