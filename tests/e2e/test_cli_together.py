"""Several command lines at once on one data folder."""

from __future__ import annotations

from pathlib import Path

from cli_kit import ANSWER, BROKEN, FIXED, TEST, CommandLine, finish
from git_repository import git, write

RUNS = 8


def test_many_runs_share_a_data_folder(tmp_path: Path) -> None:
    """R59: each completes, each is on record once, and none ends another's run."""
    line = CommandLine.make(tmp_path)
    folders = [line.folder / f"app-{number}" for number in range(RUNS)]
    for folder in folders:
        folder.mkdir()
        write(folder, {"doubling.py": BROKEN, "test_doubling.py": TEST})
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "first")
    processes = [line.start("run", "fix it", cwd=folder) for folder in folders]
    ended = [finish(process) for process in processes]
    assert [(code, out) for code, out, _ in ended] == [(0, ANSWER + "\n")] * RUNS, ended
    assert all((folder / "doubling.py").read_text() == FIXED for folder in folders)
    assert [run["status"] for run in line.runs()] == ["completed"] * RUNS


def test_two_runs_on_one_tree_never_mix(tmp_path: Path) -> None:
    """Both change one file: one is applied whole, the other is a conflict or finds nothing to do."""
    line = CommandLine.make(tmp_path)
    processes = [line.start("run", "fix it") for _ in range(2)]
    codes = sorted(finish(process)[0] for process in processes)
    assert codes in ([0, 0], [0, 1])
    assert line.read() == FIXED
    ends = sorted((run["terminal"]["code"] or "", run["delivery"]["status"]) for run in line.runs())
    assert ends[0] == ("", "delivered")
    assert ends[1] in {("", "delivered"), ("", "skipped"), ("delivery_conflict", "conflict")}
