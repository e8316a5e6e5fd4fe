"""What is said of an ended run: how it ended, checks, patch, bill, and where to look next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from remit.cli._diff import files_of, stat_lines
from remit.cli._formats import (
    between_ms,
    check_words,
    count,
    delivery_words,
    duration,
    end_words,
    exit_words,
    limit_words,
    money,
    stands_in_place,
    tokens,
)
from remit.cli._screen import Glyphs
from remit.cli._words import one_line, program_name, some_lines
from remit.contract import FLAG_WORDS, CancelReceipt, CheckResult, RunView, Usage

_KIND_STYLES = {"completed": "green", "failed": "red", "cancelled": "yellow", "indeterminate": "red"}
_SHOWN_FILES = 20
_SHOWN_FLAGS = 5
_GAP = 3
"""Between two columns of a table."""


def report(
    view: RunView,
    *,
    patch: str,
    glyphs: Glyphs,
    width: int,
    next_steps: bool = True,
    detail: str | None = None,
) -> RenderableType:
    """The end of a run, for people; without where to look next where they are asked instead."""
    told = (
        view.terminal is not None and view.terminal.class_ == "workspace"
    )  # on its own line, as it happened
    parts: list[RenderableType] = [headline(view, glyphs, detail=None if told else detail)]
    if view.cancel is not None:
        parts += [Text(), receipt_table(view.cancel)]
    if view.checks:
        parts += [Text(), checks_table(view.checks, width=width)]
    if view.patch is not None and view.patch.files:
        parts += [Text(), *_stat(patch, width), *flag_lines(view)]
    parts += [Text(), facts_table(view)]
    parts += [Text(), steps_after(view)] if next_steps else []
    return Group(*parts)


def headline(view: RunView, glyphs: Glyphs, *, detail: str | None = None) -> RenderableType:
    """How it ended, in one line, and its sentences where it isn't completed."""
    terminal = view.terminal
    assert terminal is not None, "only an ended run is reported"
    sign = glyphs.done if terminal.kind == "completed" else glyphs.failed
    took = between_ms(view.created_at, view.ended_at or view.created_at)
    style = _KIND_STYLES[terminal.kind]
    line = Text.assemble(
        (f"{sign} {end_words(terminal)}", f"bold {style}"), (f" after {duration(took)}", "dim")
    )
    told = [] if terminal.message is None else [terminal.message]
    if detail is not None:
        told += some_lines(detail, width=400)
    limit = limit_words(terminal)
    if limit is not None:
        told = [*told[:-1], f"{told[-1]} ({limit})" if told else f"({limit})"]
    if terminal.class_ == "rejected" and view.review is not None and view.review.decision != "pass":
        told.append(f"The reviewer: {one_line(view.review.summary, width=400)}")
    return Group(line, *(_indented(Text(sentence)) for sentence in told))


def receipt_table(receipt: CancelReceipt) -> RenderableType:
    """Each piece of work that a cancel reached, how it was stopped, how fast."""
    table = _table("stopped", "how", "ms", "processes")
    label, how, ms, processes = table.columns
    # How it was stopped and how fast is what a receipt is read for: where the room is short the others fold.
    label.no_wrap = processes.no_wrap = False
    how.min_width = max((len(item.how) for item in receipt.items), default=None)
    ms.min_width = max((len(str(item.ms)) for item in receipt.items), default=None)
    ms.justify = "right"
    for item in receipt.items:
        pids = " ".join(map(str, item.pids or ()))
        table.add_row(one_line(f"{item.kind} {item.label}", width=50), item.how, str(item.ms), pids)
    if receipt.complete:
        end = Text("  Everything that the run had started has ended.", style="dim")
    else:
        end = Text("  Not everything could be shown to have ended.", style="red")
    reason = f": {one_line(receipt.reason, width=200)}" if receipt.reason else ""
    asked = _indented(Text(f"Asked for by {receipt.by} at {receipt.requested_at:%Y-%m-%d %H:%M:%S}Z{reason}"))
    return Group(asked, _indented(table), end) if receipt.items else Group(asked, end)


def checks_table(checks: Sequence[CheckResult], *, width: int) -> RenderableType:
    """Checks before and after: a table, or where that has no room two lines for each."""
    names = ("check", "before", "after", "", "")
    rows = [
        (
            one_line(check.id, width=30),
            exit_words(check.base_exit),
            exit_words(check.exit),
            check_words(check),
            "" if check.ms is None else duration(check.ms),
        )
        for check in checks
    ]
    styles = [{"pass": "green", "worse": "red", "skipped": "yellow"}[check.gate] for check in checks]
    if sum(max(map(len, column)) + _GAP for column in zip(names, *rows, strict=True)) > width:
        lines: list[Text] = []
        for (name, before, after, words, took), style in zip(rows, styles, strict=True):
            lines += [
                Text(f"{name}: {before}, then {after}"),
                Text.assemble("  ", (words, style), f" {took}"),
            ]
        return _indented(Group(*lines))
    table = _table(*names)
    for (name, before, after, words, took), style in zip(rows, styles, strict=True):
        table.add_row(name, before, after, Text(words, style=style), Text(took, style="dim"))
    return _indented(table)


def facts_table(view: RunView) -> RenderableType:
    """Patch, usage, cost and id."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    if view.patch is not None:
        table.add_row("patch", _patch_words(view))
    if view.usage is not None:
        table.add_row("usage", usage_words(view.usage))
    table.add_row("cost", cost_words(view))
    table.add_row("run", view.id)
    for abandoned in view.abandoned:
        named = one_line(f"{abandoned.kind} {abandoned.label}", width=100)
        table.add_row(Text("not ended", style="red"), named)
    return _indented(table)


def flag_lines(view: RunView) -> list[RenderableType]:
    """What of the patch a person should look at twice, a line for each kind; empty: nothing."""
    named: dict[str, list[str]] = {}
    for flag in view.review.flags if view.review is not None else ():
        kind, _, rest = flag.partition(":")
        named.setdefault(kind, []).append(rest)
    lines: list[RenderableType] = []
    for kind, rest in named.items():
        shown = ", ".join(one_line(text, width=80) for text in rest[:_SHOWN_FLAGS])
        more = f" and {len(rest) - _SHOWN_FLAGS} more" if len(rest) > _SHOWN_FLAGS else ""
        words = FLAG_WORDS.get(kind, one_line(kind, width=30))
        lines.append(_indented(Text.assemble((f"{words}: ", "yellow"), f"{shown}{more}")))
    return lines


def usage_words(usage: Usage) -> str:
    """Tokens and requests, and whether that is all of it."""
    asked = count(usage.coverage.attempts, "request")
    cached = f", {tokens(usage.cache_read_tokens)} of them cached" if usage.cache_read_tokens else ""
    words = (
        f"{tokens(usage.total_tokens)} tokens ({tokens(usage.input_tokens)} in{cached}, "
        f"{tokens(usage.output_tokens)} out) in {asked}"
    )
    return words if usage.complete else f"{words}; not all of it is known ({', '.join(usage.causes)})"


def cost_words(view: RunView) -> str:
    """What it cost, what it may have cost at most, and the cap."""
    words = money(view.cost_usd)
    if view.cost_usd is None and view.estimated_max_cost_usd is not None:
        words += f", at most {money(view.estimated_max_cost_usd)}"
    cap = view.limits.max_cost_usd
    return words if cap is None else f"{words} of {money(cap)}"


def steps_after(view: RunView) -> RenderableType:
    """Where to look next."""
    remit = program_name()
    steps = [(f"{remit} show {view.id}", "what it did, step by step")]
    if view.patch is not None and view.patch.files:
        steps.append((f"{remit} patch {view.id}", "the patch"))
        delivery = view.delivery
        is_delivered = delivery is not None and delivery.mode != "patch" and delivery.status == "delivered"
        if is_delivered or stands_in_place(view):
            steps.append((f"{remit} undo {view.id}", "take it back"))
        elif (flags := _flags_to_apply(view)) is not None:
            steps.append((f"{remit} patch {view.id} --apply{flags}", "apply it"))
    return Group(*(_indented(_Step(command, what)) for command, what in steps))


class _Step:
    """What to type next and what it does: beside it, or below it where both don't fit into one line."""

    def __init__(self, command: str, what: str) -> None:
        self._command = command
        self._what = what

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        least = max(len(self._command), len(self._what) + 4)
        return Measurement(
            least, max(least, min(options.max_width, len(self._command) + 2 + len(self._what)))
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fits = len(self._command) + 2 + len(self._what) <= options.max_width
        yield Text.assemble((self._command, "cyan"), "  " if fits else "\n    ", (self._what, "dim"))


def _flags_to_apply(view: RunView) -> str | None:
    """What `--apply` needs beside it; None: a path that is frozen keeps it from being applied at all."""
    looked_at = view.review.flags if view.review is not None else ()
    if any(flag.startswith("frozen:") for flag in looked_at):
        return None
    flags = "" if view.patch is not None and view.patch.reviewed else " --unreviewed"
    is_protected = any(flag.startswith("protected:") for flag in looked_at)
    return f"{flags} --allow-protected" if is_protected else flags


def _patch_words(view: RunView) -> str:
    patch = view.patch
    assert patch is not None
    if not patch.files:
        return "no changes"
    refused = view.review is not None and view.review.decision != "pass"
    reviewed = "reviewed" if patch.reviewed else "not passed by its review" if refused else "not reviewed"
    size = f"{count(patch.files, 'file')}, +{patch.insertions} -{patch.deletions}"
    return f"{size}, {reviewed}, {delivery_words(view)}"


def _stat(patch: str, width: int) -> list[RenderableType]:
    files = files_of(patch)
    lines: list[RenderableType] = [
        Text.assemble("  ", line) for line in stat_lines(files[:_SHOWN_FILES], width=width - 2)
    ]
    if len(files) > _SHOWN_FILES:
        lines.append(Text(f"  and {len(files) - _SHOWN_FILES} more", style="dim"))
    return lines


def _table(*names: str) -> Table:
    """A table without lines, two columns in; an empty first column makes the room."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _indented(block: RenderableType) -> Padding:
    return Padding(block, (0, 0, 0, 2), expand=False)


def print_report(
    console: Console,
    view: RunView,
    *,
    patch: str,
    glyphs: Glyphs,
    next_steps: bool = True,
    detail: str | None = None,
) -> None:
    """Print the report, after an empty line."""
    console.print()
    made = report(view, patch=patch, glyphs=glyphs, width=console.width, next_steps=next_steps, detail=detail)
    console.print(made)
