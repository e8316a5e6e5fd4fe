"""What `remit show` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from remit.cli._diff import files_of, stat_lines
from remit.cli._finding import RunReader, find_run, open_reader
from remit.cli._formats import between_ms, duration, limit_amount, lineage_words, money, trouble_words
from remit.cli._report import checks_table, facts_table, headline, receipt_table
from remit.cli._screen import Glyphs, Results, console_on, glyphs_of
from remit.cli._story import StageStory, Story
from remit.cli._tree import Tree
from remit.cli._words import one_line, plain
from remit.contract import RunView
from remit.primitives import SystemClock
from remit.runs import AttemptRow, HistoryEntry, StoredRun

_PROMPT_CHARS = 300
_SUMMARY_CHARS = 600
_ANSWER_WORDS = {
    "plan": "what is to be done",
    "completion": "what was done",
    "verification": "how it can be told",
    "summary": "what the reviewer thinks",
}


def tell(
    wanted: str | None, *, as_json: bool, as_events: bool, verbose: bool, host: str | None = None
) -> int:
    """Show one run."""
    with open_reader(host) as reader:
        stored = find_run(reader, wanted)
        assert reader is not None, "a run was found in it"
        results = Results()
        if as_json:
            results.write_json(stored.view.to_json())
        elif as_events:
            for event in reader.read_events(stored.view.id):
                results.write_json(event.to_json())
        else:
            _tell_people(reader, stored, verbose=verbose)
    results.require_written()
    return 0


def _tell_people(reader: RunReader, stored: StoredRun, *, verbose: bool) -> None:
    story = Story()
    for event in reader.read_events(stored.view.id):
        story.add(event)
    patch = reader.read_artifact(stored.view.id, "patch")
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    parts = _parts(
        story,
        stored.view,
        console=console,
        glyphs=glyphs,
        is_alive=reader.is_alive(stored.epoch),
        patch=patch.text if patch else "",
        verbose=verbose,
    )
    for part in parts:
        console.print(part)
    for part in _troubles(reader.read_attempts(stored.view.id)):
        console.print(part)
    for part in _later(reader.read_history(stored.view.id)):
        console.print(part)


def _parts(
    story: Story,
    view: RunView,
    *,
    console: Console,
    glyphs: Glyphs,
    is_alive: bool,
    patch: str,
    verbose: bool,
) -> Iterator[RenderableType]:
    kind = view.binding if view.binding == view.profile else f"{view.binding}, {view.profile}"
    yield Text.assemble(("run ", "dim"), (view.id, "bold"), (f"  {kind}", "dim"))
    yield _indented(plain(story.prompt) if verbose else one_line(story.prompt, width=_PROMPT_CHARS))
    yield _indented(_where(story, view), style="dim")
    lineage = lineage_words(view)
    if lineage is not None:
        yield Text(f"  {lineage}", style="dim")
    yield Text()
    if story.stages:
        ended = view.ended_at or SystemClock().now()
        yield Tree(story, glyphs, now=ended, live=False)
    for stage in story.stages:
        yield from _said(stage, verbose=verbose)
    yield from _on_the_way(story)
    yield from _end(story, view, glyphs, is_alive=is_alive)
    if view.cancel is not None:
        yield from (Text(), receipt_table(view.cancel))
    if view.checks:
        yield from (Text(), checks_table(view.checks, width=console.width))
    if patch:
        yield Text()
        for line in stat_lines(files_of(patch), width=console.width - 2):
            yield Text.assemble("  ", line)
    yield from (Text(), facts_table(view))
    if view.output:
        yield from (Text(), Text("the answer", style="dim"), _indented(plain(view.output)))


def _where(story: Story, view: RunView) -> str:
    workspace = view.workspace
    if workspace is None:
        return "without a workspace"
    parts = [story.root or workspace.ref]
    parts += [f"base {workspace.base}"] if workspace.base else []
    parts += [f"sandbox {workspace.sandbox}"] if workspace.sandbox else []
    parts += [str(workspace.isolation)] if workspace.isolation else []
    return ", ".join(parts)


def _end(story: Story, view: RunView, glyphs: Glyphs, *, is_alive: bool) -> Iterator[RenderableType]:
    yield Text()
    if view.terminal is not None:
        yield headline(view, glyphs, detail=story.detail)
        return
    took = duration(between_ms(view.created_at, SystemClock().now()))
    if is_alive:
        yield Text(f"{glyphs.running} {view.status.value} for {took}", style="cyan")
        return
    yield Text(
        f"{glyphs.failed} {view.status.value}, but its process has died; the next `remit run` ends it",
        style="yellow",
    )


def _on_the_way(story: Story) -> Iterator[RenderableType]:
    """What was noted beside the stages: limits that came near, processes that were left running."""
    lines = [
        f"{warning.kind}: {limit_amount(warning.kind, warning.value)} of "
        f"{limit_amount(warning.kind, warning.cap)} used"
        for warning in story.warnings
    ]
    if story.leftovers:
        lines.append(f"left running, and stopped before the checks: {', '.join(story.leftovers)}")
    if not lines:
        return
    yield Text()
    yield Text("on the way", style="dim")
    for line in lines:
        yield _indented(one_line(line, width=300))


def _said(stage: StageStory, *, verbose: bool) -> Iterator[RenderableType]:
    """What a stage answered, in its own words: untrusted."""
    words = {
        key: plain(text) if verbose else one_line(text, width=_SUMMARY_CHARS)
        for key, text in stage.answer.items()
        if text.strip() and key not in ("decision", "output") and (verbose or key != "verification")
    }
    if not words:
        return
    yield Text()
    for key, text in words.items():
        yield Text(f"{stage.stage_id}: {_ANSWER_WORDS.get(key, key)}", style="dim")
        yield _indented(text)
    if stage.review is not None and stage.review.review.flags:
        flags = ", ".join(one_line(flag, width=80) for flag in stage.review.review.flags)
        yield _indented(f"to look at: {flags}")


def _troubles(attempts: tuple[AttemptRow, ...]) -> Iterator[RenderableType]:
    """Requests that didn't go well, with what the provider said."""
    bad = [row for row in attempts if row.ended is not None and row.ended.status != "completed"]
    if not bad:
        return
    yield Text()
    yield Text("requests that didn't complete", style="dim")
    for row in bad:
        ended = row.ended
        assert ended is not None
        cost = "" if ended.cost_micros is None else f", {money(ended.cost_micros / 1_000_000)}"
        yield _indented(f"{ended.stage_id}: {trouble_words(ended)}{cost}")


def _later(history: tuple[HistoryEntry, ...]) -> Iterator[RenderableType]:
    """What happened after the end."""
    if not history:
        return
    yield Text()
    yield Text("after its end", style="dim")
    for entry in history:
        yield _indented(f"{entry.at:%Y-%m-%d %H:%M:%S}Z  {one_line(entry.type, width=60)}")


def _indented(text: str, *, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))
