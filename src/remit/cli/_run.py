"""`remit run`: its options and its help. What it does is in `_running`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from remit.cli._host_option import host_option, require_host

_HELP = """Run one request: plan, work, review; then apply what passed.

\b
  remit run "make the failing test pass"
  remit run "add a --json flag to export" --max-cost 2 --timeout 20m
  remit run --prompt-file task.md -w ../app --patch-only
  git diff | remit run - --profile direct
  remit run "..." --model openai:gpt-5.2 --review-model local:qwen3
  remit run "..." --branch fix/total --summary "$GITHUB_STEP_SUMMARY"

The work happens on a private copy of the workspace, in a sandbox without network. It is applied only if the
review has passed and the workspace's own checks are no worse than before; at a terminal you are shown checks,
changes and cost, and asked. stdout gets the reviewer's answer and nothing else; progress goes to stderr.

Exit codes: 0 completed; 1 failed; 2 wrong use or settings, nothing started; 3 out of budget or
time; 4 cancelled; 5 rejected by review or checks; 6 it can't be proven how it ended; 75 try again
later; 130 and 143 stopped by Ctrl-C and SIGTERM. Ctrl-C waits until everything has ended; a
second one doesn't.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was typed."""

    prompt: str | None
    prompt_file: Path | None
    workspace: str | None
    binding: str | None
    model: str | None
    plan_model: str | None
    work_model: str | None
    review_model: str | None
    profile: str | None
    base: str | None
    apply: bool
    branch: str | None
    patch_only: bool
    max_cost: str | None
    timeout: str | None
    dry_run: bool
    as_json: bool
    as_jsonl: bool
    summary: Path | None
    config_file: Path | None
    in_place: bool
    unreviewed: bool
    allow_protected: bool
    allow_unconfined: bool
    preserve: str | None
    detach: bool
    wait: str | None
    host: str | None
    continues: str | None = None
    """The run whose session, base and checkout are taken up; None: none's."""
    session_id: str | None = None
    """The session that it goes on in, where no checkout is taken up."""


@click.command(help=_HELP)
@click.argument("prompt", required=False)
@click.option(
    "--prompt-file", type=click.Path(path_type=Path), metavar="FILE", help="Read the request from a file."
)
@click.option(
    "-w",
    "--workspace",
    metavar="DIR|REF",
    help="Folder to work in, or a workspace of remit.toml. Default: the repository around you.",
)
@click.option("-b", "--binding", metavar="NAME", help="A binding of remit.toml. Default: reviewed.")
@click.option(
    "--model", metavar="NAME:MODEL", help="Model for every stage that names none, such as openai:gpt-5.2."
)
@click.option("--plan-model", metavar="NAME:MODEL", help="Model of the plan stage.")
@click.option("--work-model", metavar="NAME:MODEL", help="Model of the work stage.")
@click.option("--review-model", metavar="NAME:MODEL", help="Model of the review stage.")
@click.option(
    "--profile",
    type=click.Choice(["reviewed", "direct", "answer"]),
    help="reviewed: plan, work, review. direct: work alone; its patch is kept, not applied. "
    "answer: one plain request, without a workspace.",
)
@click.option(
    "--base",
    metavar="worktree|head|REF",
    help="What the copy starts from. Default: worktree, that is HEAD and your uncommitted work.",
)
@click.option(
    "--apply", is_flag=True, help="Apply the result to your files. Default; at a terminal you are asked."
)
@click.option("--branch", metavar="NAME", help="Put the result on a new branch, and change no file.")
@click.option("--patch-only", is_flag=True, help="Change no file; keep the patch for `remit patch`.")
@click.option(
    "--max-cost", metavar="USD", help="Money that it may cost. Default: 5 where nothing else is set."
)
@click.option("--timeout", metavar="TIME", help="Time for all of it: 30m, 1h30m, 90 (seconds). Default: 1h.")
@click.option("--dry-run", is_flag=True, help="Start nothing; say what would happen, and what it may cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the ended run as one JSON document.")
@click.option(
    "--jsonl", "as_jsonl", is_flag=True, help="Print each event as a line of JSON; the last is the ended run."
)
@click.option(
    "--summary",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a summary of the ended run to a file, as Markdown for CI.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A remit.toml to use in place of the one found upwards.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Work on your files themselves, not on a copy; `remit undo` takes it back.",
)
@click.option("--unreviewed", is_flag=True, help="Let profile direct apply what nobody reviewed.")
@click.option(
    "--allow-protected",
    is_flag=True,
    help="Let the result touch CI workflows, hooks, remit.toml and the like.",
)
@click.option("--allow-unconfined", is_flag=True, help="Run commands without a sandbox where there is none.")
@click.option(
    "--preserve",
    type=click.Choice(["never", "failed", "always"]),
    help="When to keep the private copy after the end. Default: failed.",
)
@click.option("--detach", is_flag=True, help="With a host: start it, print its id, and leave it alone.")
@click.option("--wait", metavar="TIME", help="With a host: follow it so long at most; then exit 124.")
@host_option
def run(**typed: Any) -> int:
    """Replaced by the text above."""
    options = RunOptions(**typed)
    if options.host or options.detach or options.wait is not None:
        from remit.cli._remote_run import run_there  # noqa: PLC0415 - `--help` needn't load the client

        return run_there(options, require_host(options.host, "--detach or --wait"))
    from remit.cli._running import execute  # noqa: PLC0415 - `--help` needn't load the host

    return execute(options)


assert {field.name for field in fields(RunOptions)} == {parameter.name for parameter in run.params} | {
    "continues",
    "session_id",
}
