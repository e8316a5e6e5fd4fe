"""The dashboard's pure parts: a run's story, its patch in colours, numbers as places and words."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from remit.api.dashboard import takes_form
from remit.api.dashboard._diff import MOST_LINES, read_diff
from remit.api.dashboard._plots import COLUMN_HEIGHT, MOST_MARKS, WIDTH, bars_of, days_of, timeline_of
from remit.api.dashboard._render import ago, count, render, seconds, shown, static_file, usd, without_hidden
from remit.api.dashboard._sessions_page import sum_of_costs
from remit.api.dashboard._story import Story
from remit.cli._diff import files_of
from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    Limits,
    Model,
    RunStatus,
    RunView,
    StageCompleted,
    StageStarted,
    ToolCompleted,
    ToolStarted,
)
from remit.events import Event

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

PATCH = """diff --git a/calc.py b/calc.py
index 1111111..2222222 100644
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,2 @@ def add
 def add(a, b):
-    return a - b
+    return a + b  # <script>
--- not a header, a removed line of two dashes
diff --git a/b.txt b/b.txt
new file mode 100644
--- /dev/null
+++ b/b.txt
@@ -0,0 +1 @@
+diff --git a/x b/x
\\ No newline at end of file
"""


def event(seq: int, type_: str, data: Model, *, after_s: float = 0) -> Event:
    """One stored event."""
    return Event.model_validate(
        {
            "type": type_,
            "seq": seq,
            "run_id": "run_1",
            "session_id": "run_1",
            "at": START + timedelta(seconds=after_s),
            "work_id": "run_1",
            "parent_work_id": None,
            "data": data.model_dump(mode="json", by_alias=True),
        }
    )


def attempt(number: int) -> AttemptStarted:
    """A request of a round."""
    return AttemptStarted(
        attempt_id=f"att_{number}",
        stage_id="work-1",
        round=number,
        ordinal=1,
        model="demo:m",
        reserved_tokens=1,
    )


def ended(number: int, status: str = "completed") -> AttemptEnded:
    """Its end."""
    started = attempt(number)
    return AttemptEnded(
        **started.model_dump(include={"attempt_id", "stage_id", "round", "ordinal", "model"}),
        status=status,
        usage=None,
    )


def told(*events: Event) -> Story:
    """A story of events."""
    story = Story()
    for one in events:
        story.feed(one)
    return story


def test_story_has_stages_rounds_attempts_and_tools_where_they_belong() -> None:
    """R49: what a run did is told from its events alone, each at its place, with how it went."""
    story = told(
        event(1, "stage.started", StageStarted(stage_id="work-1", status=RunStatus.WORKING)),
        event(2, "attempt.started", attempt(1), after_s=1),
        event(3, "attempt.failed", ended(1, "cut"), after_s=2),
        event(4, "attempt.started", attempt(1).model_copy(update={"attempt_id": "att_1b", "ordinal": 2})),
        event(
            5, "tool.started", ToolStarted(tool_call_id="c1", stage_id="work-1", name="run_shell", label="ls")
        ),
        event(
            6,
            "tool.completed",
            ToolCompleted(
                tool_call_id="c1",
                stage_id="work-1",
                name="run_shell",
                status="success",
                exit_code=3,
                duration_ms=7,
                receipt_id=None,
            ),
        ),
        event(7, "attempt.started", attempt(2)),
        event(
            8, "stage.completed", StageCompleted(stage_id="work-1", answer={"completion": "done"}), after_s=9
        ),
    )
    (stage,) = story.stages
    assert [round_.number for round_ in stage.rounds] == [1, 2]
    assert [one.status for one in stage.rounds[0].attempts] == ["cut", "started"]
    (tool,) = stage.rounds[0].tools
    assert tool.done is not None
    assert tool.done.exit_code == 3
    assert stage.status == "completed"
    assert stage.seconds(START) == 9


def test_event_that_was_told_changes_nothing_again() -> None:
    """R64: a story is fed from a log that is read again from any place; each event counts once."""
    first = event(1, "stage.started", StageStarted(stage_id="plan", status=RunStatus.PLANNING))
    assert len(told(first, first).stages) == 1


def test_diff_keeps_every_line_and_colours_words() -> None:
    """R49: a patch is shown as it is; its text goes through as text, whatever it looks like."""
    diff = read_diff(PATCH)
    assert [(one.path, one.insertions, one.deletions) for one in diff.files] == [
        ("calc.py", 1, 2),
        ("b.txt", 1, 0),
    ]
    lines = [line for part in diff.files for line in part.lines]
    text = "\n".join("".join(piece for _, piece in line.pieces) for line in lines)
    assert "return a + b  # <script>" in text
    assert "-- not a header" in text
    assert "diff --git a/x b/x" in text
    coloured = {kind for line in lines for kind, _ in line.pieces if kind}
    assert any(kind.startswith("k-") for kind in coloured)
    added = next(line for line in lines if line.kind == "add")
    assert (added.old, added.new) == (None, 2)


def test_diff_names_files_as_they_are_called() -> None:
    """R49: a name that git has quoted is read, by the page and by the command line alike."""
    patch = 'diff --git "a/\\303\\251 \\"x\\".py" "b/\\303\\251 \\"x\\".py"\nnew file mode 100644\n'
    patch += '--- /dev/null\n+++ "b/\\303\\251 \\"x\\".py"\n@@ -0,0 +1 @@\n+x = 1\n'
    patch += 'diff --git a/old.py "b/\\tn\\303.py"\nrename from old.py\nrename to "\\tn\\303.py"\n'
    names = ['\u00e9 "x".py', "\tn\ufffd.py"]
    assert [part.path for part in read_diff(patch).files] == names
    assert [change.path for change in files_of(patch)] == names
    assert any(kind for line in read_diff(patch).files[0].lines for kind, _ in line.pieces), (
        "known by its end"
    )


def test_nothing_hides_in_a_page() -> None:
    """R49: whatever a template is given, no letter moves a cursor, turns others around or isn't seen."""
    hidden = "\x00\x1b\x7f\x9b\u061c\u200b\u202e\u2066\u2069\u2028\ufeff\ud800\U000e0041"
    seen = "a\tb\n\u00a0\u3000\u200d\u200c\u05d0\U0001f469"
    text = render("error.html", {"status": 404, "message": hidden + seen})
    assert not set(hidden) & set(text)
    assert "\ufffd" * len(hidden) + seen in text
    assert shown(hidden + seen) == "\ufffd" * len(hidden) + seen
    patch = f"diff --git a/x.py b/x.py\n@@ -0,0 +1 @@\n+{hidden}"
    for part in read_diff(patch).files:
        for line in part.lines:
            for _, piece in line.pieces:
                assert not set(hidden) & set(str(without_hidden(piece)))


@pytest.mark.parametrize(
    "patch", ["", "nonsense", "@@ x @@\n+a", "diff --git a/x b/x\n@@ -1 +1 @@", "\x00\n"]
)
def test_diff_takes_anything(patch: str) -> None:
    """R49: a patch that isn't one is shown as it stands, and breaks nothing."""
    assert not read_diff(patch).cut


def test_large_diff_is_cut_and_fast() -> None:
    """R49: a huge patch costs a bounded page."""
    body = "".join(f"+line_{number} = {number}\n" for number in range(50_000))
    started = time.process_time()
    diff = read_diff(f"diff --git a/x.py b/x.py\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1,50000 @@\n{body}")
    assert diff.cut
    assert sum(len(part.lines) for part in diff.files) <= MOST_LINES
    assert time.process_time() - started < 5


def test_timeline_lies_within_its_bounds_and_is_bounded() -> None:
    """R49: thousands of rounds make a picture of bounded size, and nothing lies outside it."""
    events = [event(1, "stage.started", StageStarted(stage_id="work-1", status=RunStatus.WORKING))]
    for number in range(1, 1_001):
        events.append(event(len(events) + 1, "attempt.started", attempt(number), after_s=number))
        events.append(event(len(events) + 1, "attempt.completed", ended(number), after_s=number + 0.5))
    timeline = timeline_of(told(*events), now=START + timedelta(seconds=1_001))
    (lane,) = timeline.lanes
    assert len(lane.marks) == MOST_MARKS + 1
    for mark in lane.marks:
        assert mark.x >= 0
        assert mark.x + mark.width <= WIDTH + 0.2


def test_bars_have_shares_of_the_largest() -> None:
    """The largest bar is whole; of nothing all are empty."""
    assert [bar.share for bar in bars_of([("a", 4.0, ""), ("b", 1.0, "")])] == [100.0, 25.0]
    assert [bar.share for bar in bars_of([("a", 0.0, "")])] == [0.0]


def test_days_have_a_place_each_also_those_without_anything() -> None:
    """A plot by day shows the gaps: a day's column stands at its own place, and as high as its share."""
    rows = {"2026-02-27": (1.0, "one"), "2026-03-01": (4.0, "four"), "2026-03-02": (0.001, "little")}
    plot = days_of(rows, first=date(2026, 2, 26), last=date(2026, 3, 2))
    assert [one.title for one in plot.columns] == [
        "2026-02-26: nothing",
        "2026-02-27: one",
        "2026-02-28: nothing",
        "2026-03-01: four",
        "2026-03-02: little",
    ]
    assert [one.height for one in plot.columns] == [0, COLUMN_HEIGHT / 4, 0, COLUMN_HEIGHT, 2]
    assert all(one.y + one.height == COLUMN_HEIGHT for one in plot.columns)
    assert (plot.top, plot.ticks[-1][1]) == ("four", "2 Mar")
    assert days_of({}, first=date(2026, 3, 1), last=date(2026, 3, 1)).columns[0].height == 0


def ended_run(cost_usd: float | None, estimate_usd: float | None, *, ended: bool = True) -> RunView:
    """A run with a bill."""
    return RunView(
        id="run_1",
        session_id="run_1",
        root_run_id="run_1",
        binding="b",
        profile="direct",
        status=RunStatus.COMPLETED if ended else RunStatus.WORKING,
        created_at=START,
        limits=Limits(),
        cost_usd=cost_usd,
        estimated_max_cost_usd=estimate_usd,
    )


@pytest.mark.parametrize(
    ("bills", "total"),
    [
        ([(1.0, 1.0, True), (0.5, 0.5, True)], (1.5, 1.5)),
        ([(1.0, 1.0, True), (None, 0.25, True)], (None, 1.25)),
        ([(1.0, 1.0, True), (None, None, True)], (None, None)),
        ([(1.0, 1.0, True), (None, None, False)], (1.0, 1.0)),
        ([], (0.0, 0.0)),
    ],
)
def test_a_sessions_cost_is_never_guessed(
    bills: list[tuple[float | None, float | None, bool]], total: tuple[float | None, float | None]
) -> None:
    """What isn't known of one run isn't known of the sum; what goes on isn't counted yet."""
    runs = [ended_run(cost, most, ended=ended) for cost, most, ended in bills]
    assert sum_of_costs(runs) == total


def test_numbers_are_said_as_people_say_them() -> None:
    """A cost that isn't known isn't 0; times have one unit or two."""
    assert (usd(None), usd(0.00123), usd(1234.5)) == ("unknown", "$0.0012", "$1,234.50")
    assert (seconds(0.0123), seconds(75), seconds(3_700)) == ("12 ms", "1 min 15 s", "1 h 01 min")
    assert (count(None), count(1_234_567)) == ("–", "1\u202f234\u202f567")
    assert ago(START, START + timedelta(hours=49)) == "2 d ago"
    assert shown("a\x1b[31mb\u202ec" + "x" * 10, 7).startswith("a\ufffd[31mb\n… ")


def test_values_of_a_template_are_never_markup() -> None:
    """R49: what comes from outside is escaped by the templates themselves."""
    values: dict[str, Any] = {"status": 404, "message": "<script>alert(1)</script>"}
    assert "<script>alert" not in render("error.html", values)


def test_static_files_name_nothing_outside_and_no_page_has_inline_code() -> None:
    """R49: the pages work under a policy without inline code, and ask nobody else for anything."""
    for name in ("app.css", "app.js", "icon.svg"):
        text = static_file(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "@import" not in text
    assert "innerHTML = " not in static_file("app.js").decode()
    assert "eval(" not in static_file("app.js").decode()


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/login", True),
        ("/runs/run_1/cancel", True),
        ("/api/v1/runs/run_1/cancel", False),
        ("/runs/a/b/cancel", False),
        ("/v1/chat/completions", False),
        ("/login/", False),
        ("/login\n", False),
    ],
)
def test_only_the_pages_own_paths_take_forms(path: str, *, form: bool) -> None:
    """R79: what a site can send without asking reaches no call of the API."""
    assert takes_form(path) is form
