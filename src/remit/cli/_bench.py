"""`remit bench`: its commands and their help. What they do is in `_solving`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

_HELP = """Measure what a model and a profile solve."""
_SOLVE_HELP = """Let a model solve twenty small tasks, and count what was solved.

\b
  remit bench solve --model openai:gpt-5.2                 all twenty, profile reviewed
  remit bench solve --model local:qwen3 --profile direct   the same by work alone
  remit bench solve --task rust-median --task c-utf8-length
  remit bench solve --scripted                             the reference solutions; costs nothing
  remit bench solve --list                                 the tasks

Each task is a tiny repository and a request. A run works on it as on any other; its patch is applied to a
fresh copy, where checks that the model never saw decide whether the task is solved. All of it happens in a
temporary folder. A task whose tools aren't installed here is named as not run and counts for nothing.

It exits with 0 when the tasks were run, whatever came of them; with --scripted, which tests the measuring
itself, only when all of them were solved.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """What was typed."""

    model: str | None = None
    profile: str | None = None
    tasks: tuple[str, ...] = ()
    """Names; none: all."""
    scripted: bool = False
    max_cost: str | None = None
    timeout: str = "10m"
    as_json: bool = False
    config_file: Path | None = None
    allow_unconfined: bool = False
    keep: bool = False


@click.group(help=_HELP)
def bench() -> None:
    """Replaced by the text above."""


@bench.command(help=_SOLVE_HELP)
@click.option(
    "--model", metavar="NAME:MODEL", help="The model of every stage. Default: what `remit run` takes."
)
@click.option(
    "--profile", type=click.Choice(["reviewed", "direct"]), help="Default: as `remit run` has it: reviewed."
)
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--scripted", is_flag=True, help="Play the reference solutions in place of a model.")
@click.option("--max-cost", metavar="USD", help="What each task may cost. Default: as `remit run` has it: 5.")
@click.option("--timeout", metavar="TIME", default="10m", show_default=True, help="Time for each task.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each task, and one that sums up.")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="A remit.toml to use."
)
@click.option("--allow-unconfined", is_flag=True, help="Run commands without a sandbox where there is none.")
@click.option("--keep", is_flag=True, help="Keep the temporary folder, and say where it is.")
@click.option("--list", "list_only", is_flag=True, help="List the tasks and do nothing.")
def solve(
    model: str | None,
    profile: str | None,
    tasks: tuple[str, ...],
    scripted: bool,
    max_cost: str | None,
    timeout: str,
    as_json: bool,
    config_file: Path | None,
    allow_unconfined: bool,
    keep: bool,
    list_only: bool,
) -> int:
    """Replaced by the text above."""
    from remit.cli._solving import list_tasks, solve_tasks  # noqa: PLC0415 - `--help` needn't load the host

    if list_only:
        return list_tasks()
    if scripted and model is not None:
        raise click.UsageError("--scripted and --model exclude each other")
    return solve_tasks(
        SolveOptions(
            model=model,
            profile=profile,
            tasks=tasks,
            scripted=scripted,
            max_cost=max_cost,
            timeout=timeout,
            as_json=as_json,
            config_file=config_file,
            allow_unconfined=allow_unconfined,
            keep=keep,
        )
    )
