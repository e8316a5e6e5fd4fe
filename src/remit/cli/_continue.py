"""`remit continue`: a new run that goes on where an ended one stopped. What it does is in `_going_on`."""

from __future__ import annotations

from typing import Any

import click

from remit.cli._host_option import require_host
from remit.cli._run import RunOptions, run

_HELP = """Go on where an ended run stopped, as a new run.

\b
  remit continue RUN                           go on with what was asked
  remit continue RUN "now add a test for it"   with something more to do
  remit continue RUN --max-cost 2 --model openai:gpt-5.2

The new run has the earlier one's session, that is what was asked and answered in it, and a copy of its
checkout with everything that it had done there. A checkout is kept of runs that didn't complete (`--preserve
always` keeps every one). Where the earlier run's work was applied, the new one starts from your files.

It takes the options of `remit run`.
"""
_DEFAULT_PROMPT = "Go on with what was asked before in this session, from where that work stopped."


def _continue(run_id: str, prompt: str | None, prompt_file: Any, **typed: Any) -> int:
    if prompt is None and prompt_file is None:
        prompt = _DEFAULT_PROMPT
    options = RunOptions(prompt=prompt, prompt_file=prompt_file, continues=run_id, **typed)
    if options.host or options.detach or options.wait is not None:
        from remit.cli._remote_run import run_there  # noqa: PLC0415 - `--help` needn't load the client

        return run_there(options, require_host(options.host, "--detach or --wait"))
    from remit.cli._going_on import go_on  # noqa: PLC0415 - `--help` needn't load the host

    return go_on(options)


command = click.Command(
    "continue",
    help=_HELP,
    callback=_continue,
    params=[
        click.Argument(["run_id"], metavar="RUN"),
        click.Argument(["prompt"], required=False),
        *(parameter for parameter in run.params if parameter.name != "prompt"),
    ],
)
