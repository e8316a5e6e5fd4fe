"""A short soak of a real host; `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def soak(*arguments: str, timeout_s: float) -> tuple[int, str]:
    """Run the soak; its exit code and what it printed."""
    words = [sys.executable, "-m", "bench.soak", *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_lets_go_of_everything() -> None:
    """S75: after clients that hung up, came back and cancelled, an idle host holds what it held before."""
    code, said = soak("--seconds", "12", "--at-once", "40", timeout_s=280)
    assert code == 0, said
    assert "nothing leaks" in said


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_ten_minutes_of_two_hundred_at_once() -> None:
    """S75: the same for long, where memory has time to rise."""
    code, said = soak("--seconds", "600", "--at-once", "200", timeout_s=1_100)
    assert code == 0, said
