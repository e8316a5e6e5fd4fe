"""The live tree and the plain lines, from the events of real supervisors on fakes."""

from __future__ import annotations

import io
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from rich.cells import cell_len
from rich.console import Console

from remit.admission import Binding
from remit.cli._formats import trouble_words
from remit.cli._lines import line_of
from remit.cli._progress import LineProgress, LiveProgress, QuietProgress, logging_to, make_progress
from remit.cli._report import report
from remit.cli._screen import Glyphs, console_on, glyphs_of
from remit.cli._story import Story
from remit.cli._tree import Tree
from remit.contract import AttemptEnded, RunStatus
from remit.errors import ProviderError
from remit.events import Event
from remit.primitives import SystemClock
from remit.testing._fakes_stages import PoolReply
from remit.testing._run_world import PASS, PLAN, WORK, WRITE, good_replies, run_world

HOSTILE = ("c2", "run_shell", '{"command": "echo \\u001b]0;owned\\u0007 \\u202e' + "x" * 200 + '"}')


async def events_of(*replies: PoolReply) -> tuple[Event, ...]:
    """The log of a run."""
    async with run_world(*(replies or good_replies())) as world:
        view = await world.drive()
        return await world.events(view.id)


async def many_calls(count: int) -> tuple[Event, ...]:
    """The log of a run with many tool calls in one stage."""
    calls = [
        PoolReply(calls=[(f"c{number}", "read_file", '{"relative_path": "a.txt"}')], finish="tool_calls")
        for number in range(count)
    ]
    return await events_of(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls"),
        *calls,
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )


def told(events: tuple[Event, ...]) -> Story:
    """The story of a log."""
    story = Story()
    for event in events:
        story.add(event)
    return story


def drawn(story: Story, *, width: int, height: int = 50, live: bool = True) -> list[str]:
    """The tree as lines of text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=False, markup=False)
    console.print(Tree(story, Glyphs(), now=datetime.now(UTC), live=live), end="")
    return stream.getvalue().splitlines()


class Terminal:
    """As much of a terminal as the tree uses: text, line ends, erasing, moving up."""

    def __init__(self) -> None:
        self.rows: list[str] = [""]
        self.row = self.column = 0
        self.hidden = False

    def feed(self, data: str) -> None:
        """What was written."""
        for piece in re.split("(\x1b\\[[0-9;?]*[A-Za-z]|\r|\n)", data):
            self._apply(piece)

    def _apply(self, piece: str) -> None:
        if piece == "\n":
            self.row, self.column = self.row + 1, 0
            self.rows += [""] * (self.row + 1 - len(self.rows))
        elif piece == "\r":
            self.column = 0
        elif piece.startswith("\x1b["):
            self._obey(piece)
        else:
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + piece + line[self.column + len(piece) :]
            self.column += len(piece)

    def _obey(self, sequence: str) -> None:
        number = int(re.sub("[^0-9]", "", sequence) or 1)
        if sequence.endswith("A"):
            self.row -= number
            assert self.row >= 0, "moved above the screen"
        elif sequence.endswith("K"):
            self.rows[self.row] = ""
        elif sequence in ("\x1b[?25l", "\x1b[?25h"):
            self.hidden = sequence.endswith("l")
        else:
            assert sequence.endswith("m"), f"unexpected {sequence!r}"

    @property
    def text(self) -> list[str]:
        """What can be seen, without empty lines at the end."""
        rows = [row.rstrip() for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows


class LiveStream(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


# ---- the tree


async def test_the_tree_tells_stages_and_tools() -> None:
    """Each stage with its rounds, each tool call with what came of it."""
    lines = drawn(told(await events_of()), width=80, live=False)
    assert [re.sub(r" +[0-9.]+ m?s", " TIME", line) for line in lines] == [
        "├─ ✓ plan TIME  1 round",
        "├─ ✓ work-1 TIME  2 rounds",
        "│  └─ ✓ write_file a.txt TIME",
        "└─ ✓ review-1 TIME  1 round  pass",
    ]


@pytest.mark.parametrize("width", [24, 40, 80, 120])
async def test_no_line_is_wider_than_the_screen(width: int) -> None:
    """Whatever a model writes, a line of the tree stays one line, without control codes."""
    events = await events_of(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE, HOSTILE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )
    for stop in range(1, len(events) + 1):
        lines = drawn(told(events[:stop]), width=width)
        assert all(cell_len(line) <= width for line in lines)
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))


@pytest.mark.parametrize("height", [8, 12, 24])
async def test_the_tree_fits_the_screen(height: int) -> None:
    """A stage of many calls shows the last ones, and says how many there were before."""
    events = await many_calls(40)
    story = Story()
    for event in events:
        story.add(event)
        assert len(drawn(story, width=80, height=height)) < height
    assert len(drawn(story, width=80, height=height, live=False)) > 40
    running = told(tuple(event for event in events if event.seq and event.seq < 100))
    assert any("earlier tool calls" in line for line in drawn(running, width=80, height=height))


async def test_the_picture_that_stays_is_short() -> None:
    """After a long run the screen isn't flooded: the last calls of each stage, and how many came before."""
    story = told(await many_calls(40))
    stream = io.StringIO()
    tree = Tree(story, Glyphs(), now=datetime.now(UTC), live=False, most_calls=8)
    Console(file=stream, width=80, height=10).print(tree, end="")
    assert stream.getvalue().count("read_file") == 8
    assert "33 earlier tool calls" in stream.getvalue()


async def test_the_live_tree_leaves_nothing_behind() -> None:
    """What stays on the screen is what was said, and the picture of the end: nothing of what was redrawn."""
    stream = LiveStream()
    console = Console(file=stream, width=80, height=24, force_terminal=True, markup=False, color_system=None)
    progress = LiveProgress(console, stream, SystemClock())
    terminal, seen = Terminal(), 0
    with progress:
        for event in await events_of():
            progress.add(event)
            if event.type == "run.started":
                progress.say("the first line")
            terminal.feed(stream.getvalue()[seen:])
            seen = len(stream.getvalue())
            assert terminal.text[:1] in ([], ["the first line"]) or "preparing" in terminal.text[0]
    terminal.feed(stream.getvalue()[seen:])
    assert terminal.text == [
        "the first line",
        *(line.rstrip() for line in drawn(progress.story, width=80, live=False)),
    ]
    assert not terminal.hidden


async def test_a_cancel_can_be_seen_at_once() -> None:
    """The head says `cancelling` from the request on."""
    events = await events_of()
    story = told(events[:4])
    assert story.view is not None
    story.view = story.view.model_copy(update={"cancel_requested": True})
    assert "cancelling" in drawn(story, width=80)[0]


# ---- plain lines


async def test_a_log_gets_a_line_for_each_stage_and_tool() -> None:
    """Where nothing can be redrawn: one line per stage, tool and check, and no others."""
    story, lines = Story(), list[str]()
    for event in await events_of():
        story.add(event)
        line = line_of(event, story, Glyphs())
        lines += [line] if line else []
    assert [line.partition(" (")[0] for line in lines] == [
        "plan: done",
        "work-1: write_file a.txt",
        "work-1: done",
        "review-1: pass",
    ]


async def test_what_a_provider_refused_is_said_at_once() -> None:
    """S55: a request that went wrong is a line of the log and of the tree, with what the provider said."""
    story, lines = Story(), list[str]()
    for event in await events_of(PoolReply(text=PLAN), refused("no")):
        story.add(event)
        lines += [line_of(event, story, Glyphs()) or ""]
    (said,) = [line for line in lines if "request" in line]
    assert said == "work-1: request 1.1 refused, auth"
    for live in (True, False):
        assert any("request 1.1 refused" in line for line in drawn(story, width=80, live=live)) is not live


def test_what_a_provider_said_cant_steer_the_screen() -> None:
    """R49: its words are shown on one line, without what a terminal would obey."""
    ended = AttemptEnded(
        attempt_id="a",
        stage_id="plan",
        round=2,
        ordinal=3,
        model="m:m",
        status="cut",
        usage=None,
        detail="half\x1b[2J\na " + "word " * 200,
    )
    said = trouble_words(ended)
    assert said.startswith("request 2.3 cut: half")
    assert said.isprintable()
    assert len(said) < 350


def refused(words: str) -> PoolReply:
    """What a provider says to a wrong key."""
    return cast("PoolReply", ProviderError(words, reason="auth"))


async def test_quiet_progress_says_only_what_is_wrong() -> None:
    """With JSON on stdout, stderr has warnings and nothing else."""
    stream = io.StringIO()
    progress = QuietProgress(console_on(stream, environment={}), stream)
    for event in await events_of():
        progress.add(event)
    progress.say("the first line", style="bold")
    assert stream.getvalue() == ""
    progress.say("remit: cancelling", style="yellow")
    assert stream.getvalue() == "remit: cancelling\n"


def test_a_warning_becomes_a_line_without_a_traceback() -> None:
    """The program's own log doesn't tear the tree, and shows no traceback unasked."""
    stream = io.StringIO()
    progress = LineProgress(console_on(stream, environment={}), stream)
    with logging_to(progress):
        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("remit.test").exception("the run %s\x1b[2J failed", "r")
    assert stream.getvalue() == "remit: the run r failed\n"


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"TERM": "xterm"}, LiveProgress),
        ({"TERM": "dumb"}, LineProgress),
        ({"TERM": "xterm", "CI": "true"}, LineProgress),
        ({"TERM": "xterm", "CI": "false"}, LiveProgress),
        ({}, LineProgress),
    ],
)
def test_a_tree_only_where_it_can_be_redrawn(environment: dict[str, str], kind: type) -> None:
    """TERM and CI decide; a stream that is no terminal never gets a tree."""
    made = make_progress(LiveStream(), clock=SystemClock(), quiet=False, environment=environment)
    assert type(made) is kind
    piped = make_progress(io.StringIO(), clock=SystemClock(), quiet=False, environment=environment)
    assert type(piped) is LineProgress


def test_colour_only_where_it_is_wanted() -> None:
    """NO_COLOR takes the colours away; COLUMNS sets the width."""
    plain = console_on(LiveStream(), environment={"NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "60"})
    assert (plain.no_color, plain.width) == (True, 60)
    assert console_on(LiveStream(), environment={"TERM": "xterm-256color"}).no_color is False


# ---- the end


async def test_the_report_of_an_end() -> None:
    """Checks, patch, usage, cost, id, and where to look next."""
    view = told(await events_of()).view
    assert view is not None
    stream = io.StringIO()
    console_on(stream, environment={}).print(report(view, patch="", glyphs=Glyphs(), width=100))
    text = stream.getvalue()
    for words in ("✓ completed after", "reviewed, applied", "tokens", "cost", view.id, "remit undo"):
        assert words in text


async def test_every_kind_of_end_can_be_reported() -> None:
    """No end of a run, and no number that isn't known, breaks the report."""
    from remit.contract import CODES, LimitHit, Terminal

    view = told(await events_of()).view
    assert view is not None
    for class_, codes in CODES.items():
        for code in codes:
            hit = LimitHit(kind="wall_clock_ms", value=1, cap=None)
            ended = view.model_copy(
                update={
                    "terminal": Terminal.of(class_, code, limit=hit),
                    "usage": None,
                    "cost_usd": None,
                    "status": RunStatus.FAILED,
                    "ended_at": view.created_at + timedelta(seconds=1),
                }
            )
            stream = io.StringIO()
            glyphs = glyphs_of(stream)
            console_on(stream, environment={}).print(report(ended, patch="", glyphs=glyphs, width=100))
            assert CODES[class_][code] in stream.getvalue().replace("\n", " ")


async def test_a_call_that_started_a_run_names_it() -> None:
    """From the parent's story a reader gets to the child's: plain lines and tree name its id."""
    delegate = PoolReply(calls=[("d1", "delegate", '{"prompt": "Write b.txt."}')], finish="tool_calls")
    child = [PoolReply(text=PLAN), PoolReply(calls=[WRITE], finish="tool_calls"), PoolReply(text=WORK)]
    replies = [PoolReply(text=PLAN), delegate, *child, *[PoolReply(text=text) for text in (PASS, WORK, PASS)]]
    async with run_world(*replies) as world:
        binding = Binding(name="reviewed", workspace="tree", delegate=True)
        view = await world.drive(binding=binding)
        runs, _ = await world.store.list_runs(limit=9)
        below = next(run.view.id for run in runs if run.view.parent_run_id == view.id)
        events = await world.events(view.id)
    story = Story()
    lines: list[str | None] = []
    for event in events:
        story.add(event)
        lines.append(line_of(event, story, glyphs_of(io.StringIO())))
    (line,) = [line for line in lines if line is not None and "delegate" in line]
    assert line.startswith(f"work-1: delegate Write b.txt. ({below}, ")
    assert any(below in line for line in drawn(story, width=120, live=False))
