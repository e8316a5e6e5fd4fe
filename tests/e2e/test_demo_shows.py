"""`remit demo`: everything that it claims was found to be so, and it says so when it wasn't."""

from __future__ import annotations

import re
import time
from pathlib import Path

from cli_kit import CommandLine, find_processes


def test_the_demonstration(tmp_path: Path) -> None:
    """Both runs end as they should, nothing is left running, and the runs can be looked at afterwards."""
    line = CommandLine.make(tmp_path)
    (line.folder / "tmp").mkdir()
    before = set(find_processes("sleep 300"))
    began = time.monotonic()
    done = line.run("demo", cwd=line.folder, TMPDIR=str(line.folder / "tmp"))
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert len(re.findall("^  ✓ ", done.stdout, re.MULTILINE)) == 6
    assert "✗ cancelled (caller)" in done.stdout
    assert took_s < 30
    assert set(find_processes("sleep 300")) <= before
    statuses = [run["status"] for run in line.runs()]
    assert statuses == ["cancelled", "completed"]
    (folder,) = (line.folder / "tmp").glob("remit-demo-*")
    assert 'strip("-")' in (folder / "slugs" / "slugs.py").read_text()
    assert "strip" not in (folder / "slugs-again" / "slugs.py").read_text()
    assert line.run("show", line.runs()[1]["id"]).returncode == 0


def test_it_works_without_signs_and_with_strange_settings(tmp_path: Path) -> None:
    """An ASCII terminal gets letters; the user's own settings, even broken ones, don't matter."""
    line = CommandLine.make(tmp_path)
    (line.folder / "home" / "config" / "remit" / "remit.toml").write_text("not toml at all = =")
    done = line.run("demo", PYTHONIOENCODING="ascii", REMIT_POOLS__DEFAULT="7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.isascii()


def test_where_it_cant_begin_it_leaves_nothing(tmp_path: Path) -> None:
    """Without a data folder, or without git: one sentence, exit 2, and no repository is left behind."""
    line = CommandLine.make(tmp_path)
    (line.folder / "tmp").mkdir()
    (line.folder / "file").touch()
    runs = (
        line.run("demo", TMPDIR=str(line.folder / "tmp"), REMIT_HOME=str(line.folder / "file" / "data")),
        line.run("demo", TMPDIR=str(line.folder / "tmp"), PATH="/nowhere"),
    )
    for done in runs:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert list((line.folder / "tmp").iterdir()) == []
