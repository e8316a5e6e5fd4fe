"""A run as a page of Markdown, for CI: what came of it, and how to get at the patch.

Nothing that a model, a tool or a repository wrote is taken for Markdown: it stands in code, fenced by more
backticks than it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

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
    stands_in_place,
)
from remit.cli._report import cost_words, usage_words
from remit.cli._words import one_line, plain, say, some_lines
from remit.contract import FLAG_WORDS, RunView
from remit.errors import InvalidRequest

_OUTPUT_CHARS = 20_000
_FILES = 100
_FLAGS = 50
_SIGNS = {"completed": "✅", "failed": "❌", "cancelled": "⏹️", "indeterminate": "❔"}


def require_writable(path: Path | None) -> None:
    """Refuse, before anything is spent, a summary that couldn't be written.

    Raises:
        InvalidRequest: It is a folder, or its folder isn't there.
    """
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidRequest(f"--summary {path}: name a file in a folder that is there", param="summary")


def write_summary(
    path: Path | None, view: RunView, *, patch: str, code: int, detail: str | None = None
) -> int:
    """Write the page where one is wanted; returns the exit code: a page that is missing is no success."""
    if path is None:
        return code
    try:
        path.write_text(
            summary_markdown(view, patch=patch, detail=detail), encoding="utf-8", errors="replace"
        )
    except OSError as error:
        say(f"the summary {path} can't be written: {error.strerror or error}")
        return code or 1
    return code


def summary_markdown(view: RunView, *, patch: str, detail: str | None = None) -> str:
    """The page.

    Args:
        view: The run as it ended.
        patch: Its patch; empty: it has none.
        detail: What the node said of its end.
    """
    return "\n".join(_lines(view, patch, detail)) + "\n"


def _lines(view: RunView, patch: str, detail: str | None) -> Iterator[str]:
    terminal = view.terminal
    assert terminal is not None, "only an ended run is summarised"
    yield f"## {_SIGNS[terminal.kind]} Remit: {end_words(terminal)}"
    yield ""
    if terminal.message is not None:
        limit = limit_words(terminal)
        yield terminal.message + (f" ({limit})" if limit else "")
        yield ""
    if detail:
        yield from _fenced("\n".join(some_lines(detail, width=400)))
        yield ""
    yield from _facts(view)
    if view.output:
        yield from _section("Answer", _fenced(plain(view.output)[:_OUTPUT_CHARS]))
    if view.review is not None and view.review.summary:
        title = f"Review: {view.review.decision}"
        yield from _section(title, _fenced(plain(view.review.summary)[:_OUTPUT_CHARS]))
    if view.checks:
        yield from _section("Checks", _checks(view))
    if view.patch is not None and view.patch.files and patch:
        yield from _section("Changes", _fenced(_stat(patch)))
    flags = view.review.flags if view.review is not None else ()
    if flags:
        yield from _section("Look twice at", _flags(flags))
    if view.patch is not None and view.patch.files:
        yield from _section("The patch", _how(view))


def _facts(view: RunView) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    took = duration(between_ms(view.created_at, view.ended_at or view.created_at))
    facts = [("Run", _code(view.id)), ("Time", took)]
    if view.workspace is not None:
        where = " ".join(part for part in (view.workspace.ref, view.workspace.base) if part)
        facts.append(("Workspace", _code(where)))
    if view.patch is not None:
        size = f"{count(view.patch.files, 'file')}, +{view.patch.insertions} -{view.patch.deletions}"
        reviewed = "reviewed" if view.patch.reviewed else "not reviewed"
        facts.append(("Patch", f"{size}, {reviewed}, {delivery_words(view)}"))
    if view.usage is not None:
        facts.append(("Usage", usage_words(view.usage)))
    facts.append(("Cost", cost_words(view)))
    facts += [("Not ended", _code(f"{item.kind} {item.label}")) for item in view.abandoned]
    for name, value in facts:
        yield f"| {name} | {_cell(value)} |"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"### {title}"
    yield ""
    yield from lines


def _checks(view: RunView) -> list[str]:
    lines = ["| Check | Before | After | |", "|---|---|---|---|"]
    for check in view.checks:
        before, after = exit_words(check.base_exit), exit_words(check.exit)
        name = _cell(_code(one_line(check.id, width=60)))
        lines.append(f"| {name} | {before} | {after} | {check_words(check)} |")
    return lines


def _stat(patch: str) -> str:
    files = files_of(patch)
    lines = [line.plain.rstrip() for line in stat_lines(files[:_FILES], width=100)]
    if len(files) > _FILES:
        lines.append(f"and {len(files) - _FILES} more")
    return "\n".join(plain(line) for line in lines)


def _flags(flags: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for flag in flags[:_FLAGS]:
        kind, _, rest = flag.partition(":")
        lines.append(f"* {FLAG_WORDS.get(kind, 'flagged')}: {_code(one_line(rest, width=200))}")
    if len(flags) > _FLAGS:
        lines.append(f"* and {len(flags) - _FLAGS} more")
    return lines


def _how(view: RunView) -> list[str]:
    delivery = view.delivery
    if stands_in_place(view):
        return [f"It is in the workspace's own files. To take it back: `remit undo {view.id}`."]
    if delivery is not None and delivery.status == "delivered" and delivery.mode != "patch":
        where = f"on the branch {_code(delivery.ref)}" if delivery.ref else "in the workspace"
        return [f"It is {where}. To take it back: `remit undo {view.id}`."]
    return [
        "```",
        f"remit patch {view.id} > fix.patch     # fetch it",
        f"remit patch {view.id} --apply         # or apply it to the workspace",
        "```",
    ]


def _fenced(text: str) -> list[str]:
    fence = "`" * max(3, _longest_run(text) + 1)
    return [f"{fence}text", *text.rstrip("\n").split("\n"), fence]


def _code(text: str) -> str:
    """Text on one line, as code."""
    flat = " ".join(plain(text).split())
    ticks = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") or not flat else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _cell(text: str) -> str:
    """A table's cell: a bar would end it, also in code."""
    return text.replace("|", "\\|")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
