"""The command line against a host: run, watch, cancel, ps, show, patch; and what needs a host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_serve_process import command, started

from door_kit import PLAN, REVIEW, SLEEP, WORK, WRITE, DoorWorld

PROGRAM = (sys.executable, "-m", "remit.cli")


@dataclass(slots=True, kw_only=True)
class There:
    """A host in a process, and a caller with a data folder of its own."""

    world: DoorWorld
    url: str
    environment: dict[str, str]

    def argv(self, *arguments: str) -> list[str]:
        return [*PROGRAM, *arguments]

    def remit(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """One command with the host in its environment."""
        return subprocess.run(
            self.argv(*arguments),
            cwd=self.world.home,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def there(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[There]:
    world = DoorWorld(home=tmp_path, replies=getattr(request, "param", (PLAN, WRITE, WORK, REVIEW)))
    with started(world, command(world, "--drain", "2s")) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        key = (world.data / "api-key").read_text().strip()
        environment = {
            "HOME": str(tmp_path / "elsewhere"),
            "PATH": os.environ["PATH"],
            "REMIT_HOST": url,
            "REMIT_API_KEY": key,
        }
        yield There(world=world, url=url, environment=environment)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_run_on_a_host_is_shown_as_one_here(there: There) -> None:
    """Only the answer is on stdout; show, ps and patch read from the host; patch --apply applies it there."""
    done = there.remit("run", "Mend it.", "-b", "reviewed")
    assert (done.returncode, done.stdout) == (0, "It is mended.\n"), done.stderr
    assert "completed" in done.stderr
    listed = there.remit("ps", "--json")
    (run,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert run["id"] in done.stderr
    told = there.remit("show", run["id"][:12])
    assert "work-1" in told.stdout, told.stderr
    assert json.loads(there.remit("show", run["id"], "--json").stdout)["status"] == "completed"
    assert "+new" in there.remit("patch", run["id"]).stdout
    assert not (there.world.root / "new.txt").exists()
    applied = there.remit("patch", run["id"], "--apply")
    assert applied.returncode == 0, applied.stderr
    assert (there.world.root / "new.txt").read_text() == "new\n"
    whole = there.remit("run", "Mend it.", "--jsonl")
    lines = [json.loads(line) for line in whole.stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]["type"]) == ("run.queued", "run.completed")
    assert not (Path(there.environment["HOME"]) / ".local").exists()


@pytest.mark.parametrize("there", [(PLAN, SLEEP, WORK, REVIEW)], indirect=True)
def test_detached_run_is_watched_and_cancelled(there: There) -> None:
    """--detach prints the id; watch may leave; --wait runs out with 124; cancel answers the receipt."""
    detached = there.remit("run", "Mend it.", "--detach")
    run_id = detached.stdout.strip()
    assert detached.returncode == 0
    assert run_id.startswith("run_")
    watching = subprocess.Popen(
        there.argv("watch", run_id),
        cwd=there.world.home,
        env=there.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(3)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert f"run {run_id} goes on" in said
    waited = there.remit("run", "Mend it.", "--wait", "1s")
    assert waited.returncode == 124
    cancelled = there.remit("cancel", run_id, "--reason", "enough", "--json")
    assert cancelled.returncode == 0, cancelled.stderr
    answer = json.loads(cancelled.stdout)
    assert (answer["changed"], answer["run"]["status"], answer["receipt"]["reason"]) == (
        True,
        "cancelled",
        "enough",
    )
    assert "had ended" in there.remit("cancel", run_id).stderr
    assert there.remit("cancel", "nobody").returncode == 2
    assert there.remit("watch", run_id).returncode == 4


@pytest.mark.parametrize("there", [(PLAN, SLEEP, WORK, REVIEW)], indirect=True)
def test_interrupt_cancels_the_run_on_the_host(there: There) -> None:
    """R9: Ctrl-C at `remit run --host` cancels the run there, waits for its end and exits 130."""
    running = subprocess.Popen(
        there.argv("run", "Mend it."),
        cwd=there.world.home,
        env=there.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(200):
        (*_, newest) = there.remit("ps", "--json").stdout.splitlines() or [""]
        if '"status":"working"' in newest:
            break
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert "cancelled" in said


def test_what_needs_a_host_or_a_key_says_so(tmp_path: Path) -> None:
    """Without a host: 2; without a key: 2; a host that doesn't answer: 69; all in one sentence."""
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def remit(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments], cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    for arguments in (
        ["cancel", "run_x"],
        ["watch", "run_x"],
        ["run", "x", "--detach"],
        ["run", "x", "--wait", "1s"],
    ):
        done = remit(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert "--host" in done.stderr
    nobody = "http://127.0.0.1:9"
    keyless = remit("ps", "--host", nobody)
    assert keyless.returncode == 2
    assert "REMIT_API_KEY" in keyless.stderr
    unreachable = remit("ps", "--host", nobody, REMIT_API_KEY="rk_x")
    assert unreachable.returncode == 69
    assert "remit serve" in unreachable.stderr
    no_key = remit("ps", "--host", nobody, REMIT_API_KEY="sk-somebody-elses")
    no_header = remit("ps", "--host", nobody, REMIT_API_KEY="rk_ключ")
    for done in (no_key, no_header):
        assert (done.returncode, "REMIT_API_KEY" in done.stderr, "rk_" in done.stderr) == (2, True, True)
        assert "somebody" not in done.stderr
    for done in (keyless, unreachable, no_key, no_header):
        assert done.stderr.count("\n") == 1
    wrong = remit("run", "x", "--host", nobody, "--config", "x.toml", REMIT_API_KEY="rk_x")
    assert wrong.returncode == 2
