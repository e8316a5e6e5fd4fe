"""The program itself: its commands, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

import remit
from remit.cli._failing import (
    exit_code_of,
    explain,
    open_missing_streams,
    settle_streams,
    was_interrupted,
)
from remit.cli._ready import calm_collector, mute_libraries
from remit.cli._words import EXIT_INTERRUPTED, say

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("remit.cli._run:run", "Run one request: plan, work, review, and apply the result."),
    "continue": ("remit.cli._continue:command", "Go on where an ended run stopped, as a new run."),
    "watch": ("remit.cli._watch:watch", "Follow a run of a host to its end."),
    "cancel": ("remit.cli._cancel:cancel", "Stop a run of a host, or one piece of its work."),
    "show": ("remit.cli._show:show", "Tell the story of a run."),
    "patch": ("remit.cli._patch:patch", "Print a run's patch, deliver it, or discard it."),
    "ps": ("remit.cli._ps:ps", "List runs, newest first."),
    "top": ("remit.cli._top:top", "Watch what a host does now."),
    "undo": ("remit.cli._undo:undo", "Take back what a run delivered."),
    "init": ("remit.cli._init:init", "Write a remit.toml to start from."),
    "trust": ("remit.cli._trust:trust", "Let a repository's own remit.toml count in full."),
    "doctor": ("remit.cli._doctor:doctor", "Say whether a run would work here, and what to do if not."),
    "models": ("remit.cli._models:models", "Say which models a run could ask, and what is known of each."),
    "serve": ("remit.cli._serve:serve", "Run a host that is reached over HTTP."),
    "mcp": ("remit.cli._mcp:command", "Serve runs as tools to an MCP client."),
    "keys": ("remit.cli._keys:keys", "Make, list and revoke the keys of a host's callers."),
    "audit": ("remit.cli._audit:audit", "Show who did what that an operator answers for."),
    "demo": ("remit.cli._demo:demo", "Watch a real run on a small repository; no key needed."),
    "bench": ("remit.cli._bench:bench", "Measure what a model and a profile solve."),
}
"""Command -> where it lives, and its line in `remit --help`."""

_HELP = """Run a coding agent as a request: planned, sandboxed, reviewed, bounded.

\b
  remit demo                                watch it work, no key needed
  remit run "make the failing test pass"    do it in the repository around you
  remit show                                what the last run did, and why
  remit undo RUN                            take its changes back

A run works on its own copy of the repository. Your files change only when review has passed and the
repository's own checks are no worse than before; Ctrl-C stops everything that it started.
"""


class LazyGroup(click.Group):
    """Commands whose modules are loaded when they are typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command), f"{cmd_name} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`remit COMMAND --help` shows what each takes, with examples.",
)
@click.version_option(remit.__version__, "--version", message="remit %(version)s")
def program() -> None:
    """Replaced by the text above."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Never raises, and never shows a traceback unasked."""
    calm_collector()
    mute_libraries()
    open_missing_streams()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    finally:
        settle_streams()


def _run(arguments: list[str]) -> int:
    try:
        code = program.main(args=arguments, prog_name="remit", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except SystemExit as left:  # click's way of saying that nobody reads stdout
        return left.code if isinstance(left.code, int) else 1
    except (KeyboardInterrupt, click.Abort):
        say("stopped")
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get("REMIT_DEBUG") == "1":
            raise
        if was_interrupted(error):
            say("stopped")
            return EXIT_INTERRUPTED
        explain(error)
        return exit_code_of(error)
    return code if isinstance(code, int) else 0
