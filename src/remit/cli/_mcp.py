"""`remit mcp`: its options and its help. What it does is in `_mcp_serving`."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli._host_option import host_option

_HELP = """Serve runs as tools to an MCP client, over stdin and stdout. Clients start this command themselves.

\b
  remit mcp                               the repository around, its own host
  remit mcp --host http://127.0.0.1:7433  a host that is there already

Three tools: `run` has a request done and tells how it goes, `get_run` looks at a run, `cancel_run` stops one.
A client that cancels a call, or leaves, stops the runs that it was waiting for. What a run has changed is
kept as a patch; `remit patch RUN --apply` applies it. The log goes to stderr.
"""


@click.command(help=_HELP)
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
@click.option("--allow-unconfined", is_flag=True, help="Run commands without a sandbox where there is none.")
@host_option
def command(workspace: str | None, config_file: Path | None, allow_unconfined: bool, host: str | None) -> int:
    """Replaced by the text above."""
    if host and (workspace or config_file or allow_unconfined):
        raise click.UsageError("--workspace, --config and --allow-unconfined are the host's own matter")
    from remit.cli._mcp_serving import serve_mcp  # noqa: PLC0415 - `--help` needn't load the host

    return serve_mcp(
        host=host, workspace=workspace, config_file=config_file, allow_unconfined=allow_unconfined
    )
