"""The live tree: what is running, what it cost so far, what was done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from remit.cli._formats import (
    between_ms,
    call_words,
    count,
    duration,
    failure_words,
    label_of,
    money,
    tokens,
    trouble_words,
)
from remit.cli._screen import Glyphs
from remit.cli._story import CallStory, StageStory, Story
from remit.cli._words import one_line
from remit.contract import RunStatus, RunView

_ROOM_FOR_FRAME = 6
_STATUS_WORDS = {
    RunStatus.QUEUED: "preparing",
    RunStatus.FINALIZING: "checking",
    RunStatus.SETTLING: "settling",
}
_STYLES = {"running": "cyan", "done": "green", "failed": "red"}


class Tree:
    """Draws a story; one object per run, told of each event, asked at each tick.

    Args:
        glyphs: The signs that the terminal can show.
        now: The moment of the picture.
        live: Whether it is drawn while the run goes on; else it is the picture of its end.
        most_calls: How many tool calls of a stage the picture shows at most; None: all.
    """

    def __init__(
        self,
        story: Story,
        glyphs: Glyphs,
        *,
        now: datetime,
        live: bool = True,
        most_calls: int | None = None,
    ) -> None:
        self._most_calls = most_calls
        self._story = story
        self._glyphs = glyphs
        self._now = now
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each cut to the width, no more of them than the screen has."""
        width = max(20, options.max_width)
        lines = self._lines(width, height=console.size.height if self._live else None)
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
            line.end = ""
            yield line
        if not self._live:
            yield Segment.line()

    def _lines(self, width: int, *, height: int | None) -> list[Text]:
        view = self._story.view
        if view is None:
            return [Text("preparing", style="dim")]
        room = (
            self._most_calls if height is None else max(1, height - _ROOM_FOR_FRAME - len(self._story.stages))
        )
        lines = [self._head(view)] if self._live else []
        stages = self._story.stages
        closing = self._closing(view)
        for number, stage in enumerate(stages):
            is_last = number == len(stages) - 1 and closing is None
            lines += self._stage(stage, width, is_last=is_last, room=room)
        if closing is not None:
            lines.append(Text.assemble((self._glyphs.last, "dim"), closing))
        return lines

    # ---- the head: what and how much

    def _head(self, view: RunView) -> Text:
        dot = f" {self._glyphs.dot} "
        word = _STATUS_WORDS.get(view.status, view.status.value)
        if view.cancel_requested and not view.status.ended:
            word = "cancelling"
        return Text.assemble(
            (self._glyphs.running + " ", "cyan"),
            (word, "bold"),
            (dot + duration(between_ms(view.created_at, self._now)), "dim"),
            (dot + f"{tokens(self._story.total_tokens)} tokens", "dim"),
            (dot + self._spent(view), "dim"),
        )

    def _spent(self, view: RunView) -> str:
        spent = money(self._story.cost_micros / 1_000_000) if self._story.is_priced else "cost unknown"
        cap = view.limits.max_cost_usd
        return spent if cap is None else f"{spent} of {money(cap)}"

    def _closing(self, view: RunView) -> Text | None:
        """What goes on after the stages: checks, delivery, cleaning up."""
        if not self._live or view.status not in (RunStatus.FINALIZING, RunStatus.SETTLING):
            return None
        words = {
            RunStatus.FINALIZING: "running the checks, then delivering",
            RunStatus.SETTLING: "ending what is left, reading the bill",
        }
        return Text.assemble((self._glyphs.running + " ", "cyan"), words[view.status])

    # ---- a stage and what it did

    def _stage(self, stage: StageStory, width: int, *, is_last: bool, room: int | None) -> Iterator[Text]:
        glyphs = self._glyphs
        sign = {"running": glyphs.running, "done": glyphs.done, "failed": glyphs.failed}[stage.state]
        ended_at = stage.ended_at or self._now
        line = Text.assemble(
            (glyphs.last if is_last else glyphs.branch, "dim"),
            (sign + " ", _STYLES[stage.state]),
            (stage.stage_id.ljust(9), "bold" if stage.state == "running" else ""),
            (duration(between_ms(stage.started_at, ended_at)).rjust(8), "dim"),
            (f"  {count(stage.rounds, 'round')}", "dim"),
            self._verdict(stage),
        )
        yield line
        if stage.state == "running" or not self._live:
            rail = glyphs.blank if is_last else glyphs.bar
            yield from self._inside(stage, rail, width, room)

    def _verdict(self, stage: StageStory) -> Text:
        if stage.failure is not None:
            return Text(f"  {failure_words(stage.failure)}", style="red")
        if stage.review is not None:
            decision = stage.review.review.decision
            return Text(f"  {decision}", style="green" if decision == "pass" else "yellow")
        return Text()

    def _inside(self, stage: StageStory, rail: str, width: int, room: int | None) -> Iterator[Text]:
        asking = self._asking(stage)
        calls = stage.calls
        shown = calls if room is None else calls[-max(1, room) :]
        hidden = len(calls) - len(shown)
        if hidden:
            yield Text.assemble(
                (rail + self._glyphs.branch, "dim"), (f"{count(hidden, 'earlier tool call')}", "dim")
            )
        for number, call in enumerate(shown):
            is_last = number == len(shown) - 1 and asking is None
            branch = self._glyphs.last if is_last else self._glyphs.branch
            yield self._call(call, rail + branch, width)
        if asking is not None:
            yield Text.assemble((rail + self._glyphs.last, "dim"), asking)

    def _call(self, call: CallStory, lead: str, width: int) -> Text:
        right = self._outcome(call)
        room = width - len(lead) - 2 - len(right) - 2
        label = label_of(call.started.name, call.started.label, width=max(8, room))
        if call.completed is None:
            sign, style = (self._glyphs.running, "cyan") if self._live else (self._glyphs.failed, "red")
        else:
            sign, style = (self._glyphs.done, "green") if call.went_well else (self._glyphs.failed, "yellow")
        return Text.assemble((lead, "dim"), (sign + " ", style), label, (f"  {right}", "dim"))

    def _outcome(self, call: CallStory) -> str:
        done = call.completed
        if done is None:
            words = duration(between_ms(call.started_at, self._now)) if self._live else "stopped"
        else:
            words = call_words(done)
        return words if call.child_id is None else f"{one_line(call.child_id, width=40)}, {words}"

    def _asking(self, stage: StageStory) -> Text | None:
        """The request in flight, or the one that went wrong and that nothing has followed yet."""
        attempt = stage.asking if self._live else None
        if attempt is None:
            return Text(trouble_words(stage.trouble), style="yellow") if stage.trouble is not None else None
        waited = duration(between_ms(attempt.started_at, self._now))
        heard = one_line(stage.heard, width=60)
        said = f"  {heard}" if heard and not heard.startswith(("{", "```")) else ""
        return Text.assemble(
            (self._glyphs.running + " ", "cyan"),
            f"round {attempt.started.round}: {one_line(attempt.started.model, width=40)}",
            (f"  {waited}{said}", "dim"),
        )
