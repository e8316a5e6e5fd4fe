"""How a run ended, once its bill is read and its work is known to be over: pure."""

from __future__ import annotations

from collections.abc import Sequence

from remit.contract import CLI_EXIT, RunView, Terminal, UsageCause


def final_terminal(
    decided: Terminal, strict_causes: Sequence[UsageCause], *, abandoned: bool, usage_required: bool
) -> Terminal:
    """The terminal that a decision becomes.

    Kind and bill don't rewrite each other, with two exceptions: work that wasn't shown to have ended
    makes the run `indeterminate/lost`; a ledger that can't be read, or an incomplete bill where the
    request said `usage: "required"`, makes it `indeterminate/usage`.
    """
    if abandoned:
        return Terminal.of("lost", "not_stopped", stage=decided.stage)
    unreadable = "unreadable_usage_record" in strict_causes or "pending_usage_repair" in strict_causes
    if strict_causes and (usage_required or unreadable):
        return Terminal.of("usage", strict_causes[0], stage=decided.stage)
    return decided


def exit_code(run: RunView) -> int:
    """What the CLI exits with for an ended run.

    Raises:
        ValueError: The run hasn't ended.
    """
    if run.terminal is None:
        raise ValueError(f"run {run.id} hasn't ended")
    return CLI_EXIT[run.terminal.class_]
