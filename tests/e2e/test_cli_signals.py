"""Ctrl-C, SIGTERM and SIGHUP, sent to a real `remit run`."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli_kit import (
    ANSWER,
    BROKEN,
    DONE,
    FIX,
    FIXED,
    GOOD,
    PASS,
    PLAN,
    CommandLine,
    finish,
    shell,
    wait_for_process,
    wait_until_gone,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def blocking(seconds: str) -> tuple[dict[str, Any], ...]:
    """A run whose work edits, then blocks in a command with a child that was set free."""
    return (PLAN, FIX, shell(f"setsid -f sleep {seconds}1; sleep {seconds}"), DONE, PASS)


@pytest.mark.parametrize(
    ("number", "code", "seconds"),
    [(signal.SIGINT, 130, "7011"), (signal.SIGTERM, 143, "7012"), (signal.SIGHUP, 129, "7013")],
)
def test_the_first_signal_cancels_and_waits(
    tmp_path: Path, number: signal.Signals, code: int, seconds: str
) -> None:
    """R9, R12: in the middle of a tool: one `cancelled` end, a receipt, no process left, no byte changed."""
    line = CommandLine.make(tmp_path, replies=blocking(seconds))
    process = line.start("run", "fix it")
    wait_for_process(f"sleep {seconds}")
    ended = finish(process, number)
    assert ended[0] == code
    assert ended[1] == ""
    assert "Everything that the run had started has ended." in ended[2]
    assert wait_until_gone(f"sleep {seconds}", timeout_s=0.5)
    assert wait_until_gone(f"sleep {seconds}1", timeout_s=0.5)
    assert line.read() == BROKEN
    (run,) = line.runs()
    assert (run["status"], run["terminal"]["code"]) == ("cancelled", "caller")
    assert run["cancel"]["complete"]
    assert any(item["kind"] == "tool" and item["how"] in ("term", "kill") for item in run["cancel"]["items"])


def test_a_run_that_leaves_a_process_behind_ends(tmp_path: Path) -> None:
    """R12: the program ends with its result; what a tool had left running is stopped, and that is said."""
    begun = '[ "$(cat /proc/$!/comm)" = sleep ]'  # until then it's a shell of the same words
    leaving = f"sleep 7031 & until {begun}; do :; done; echo left"
    line = CommandLine.make(tmp_path, replies=(PLAN, FIX, shell(leaving), DONE, PASS))
    code, _, said = finish(line.start("run", "fix it"))
    assert code == 0
    assert "left running and stopped: sleep 7031" in said
    assert wait_until_gone("sleep 7031", timeout_s=0.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_end_changes_nothing_a_second_one_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    """R5, R9: a run that has ended keeps its exit code; but nobody waits for a reader that never reads."""
    long = "word " * 100_000  # more than a pipe holds: the program can't end before it's read
    passed = {"stage": "review", "json": {"decision": "pass", "output": long, "summary": "Fine."}}
    line = CommandLine.make(tmp_path, replies=(PLAN, FIX, DONE, passed))
    for signals, code in ((1, 0), (2, 128 + number)):
        line.use(PLAN, FIX, DONE, passed)
        process = line.start("run", "fix it", "--patch-only")
        assert process.stdout is not None
        first = process.stdout.read(1)
        for _ in range(signals):
            process.send_signal(number)
            time.sleep(0.3)
        out, said = process.communicate(timeout=60)
        assert process.returncode == code, said
        assert (len(first + out) > len(long) / 2) == (code == 0), (len(out), len(long))
    assert [run["status"] for run in line.runs()] == ["completed", "completed"]


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    """R9: whoever presses twice waits no longer; what ran is gone with the process that held it."""
    stubborn = "trap '' TERM; sleep 7021 & while :; do sleep 7022; done"
    line = CommandLine.make(tmp_path, replies=(PLAN, FIX, shell(stubborn), DONE, PASS))
    process = line.start("run", "fix it")
    wait_for_process("sleep 7022")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    began = time.monotonic()
    code, _, _ = finish(process, signal.SIGINT)
    assert code == 130
    assert time.monotonic() - began < 1.0
    assert wait_until_gone("sleep 7021")
    assert wait_until_gone("sleep 7022")
    assert line.read() == BROKEN


def test_a_signal_before_admission_leaves_no_run(tmp_path: Path) -> None:
    """Nothing was started: no run, exit 130."""
    line = CommandLine.make(tmp_path, replies=blocking("7019"))
    for delay_s in (0.05, 0.3, 0.5, 0.7):
        before = line.runs()
        process = line.start("run", "fix it")
        time.sleep(delay_s)
        code, out, _ = finish(process, signal.SIGINT)
        assert code in (130, -signal.SIGINT)
        assert out == ""
        added = len(line.runs()) - len(before)
        ended = line.runs()[0]["status"] if added else None
        assert (added, ended) in ((0, None), (1, "cancelled"))
    assert line.read() == BROKEN


def test_after_the_intent_the_run_ends_by_its_own_result(tmp_path: Path) -> None:
    """From the delivery intent on a cancel changes nothing: exit 0, applied whole."""
    line = CommandLine.make(tmp_path)
    process = line.start("run", "fix it", "--jsonl")
    assert process.stdout is not None
    for text in process.stdout:
        if json.loads(text)["type"] == "delivery.intent":
            break
    code, out, _ = finish(process, signal.SIGINT)
    last = json.loads(out.splitlines()[-1])
    assert (code, last["type"]) == (0, "run.completed")
    assert last["data"]["output"] == ANSWER
    assert line.read() == FIXED


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """Under `nohup` a SIGHUP doesn't cancel."""
    slow = (PLAN, FIX, shell("sleep 1.031"), DONE, PASS)
    line = CommandLine.make(tmp_path, replies=slow)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = line.start("run", "fix it")
    finally:
        signal.signal(signal.SIGHUP, previous)
    wait_for_process("sleep 1.031")
    code, out, _ = finish(process, signal.SIGHUP)
    assert (code, out) == (0, ANSWER + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", [250, 500, 750, 1000, 1250, 1500, 1750, 2000])
def test_a_signal_at_any_moment_leaves_all_or_nothing(tmp_path: Path, after_ms: int) -> None:
    """Whenever it comes: applied whole, or untouched; never in between.

    A signal to an interpreter that is on its way up or down ends the process by itself (-2).
    """
    line = CommandLine.make(tmp_path, replies=tuple({**reply, "delay_ms": 100} for reply in GOOD))
    process = line.start("run", "fix it")
    time.sleep(after_ms / 1000)
    code, out, _ = finish(process, signal.SIGINT)
    assert (code, line.read(), out) in (
        (0, FIXED, ANSWER + "\n"),
        (130, BROKEN, ""),
        (-2, BROKEN, ""),
        (-2, FIXED, ANSWER + "\n"),
    )
    assert all(run["terminal"] is not None for run in line.runs())
