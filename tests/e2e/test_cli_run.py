"""`remit run` and what looks at runs afterwards, each as a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli_kit import ANSWER, BROKEN, DONE, FIX, FIXED, GOOD, PASS, PLAN, CommandLine, shell
from git_repository import git, write


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A user with a scripted model."""
    return CommandLine.make(tmp_path)


def test_stdout_holds_the_answer_alone(line: CommandLine) -> None:
    """The result goes to stdout, all else to stderr; the reviewed bytes are in the tree."""
    done = line.run("run", "fix it")
    assert (done.returncode, done.stdout) == (0, ANSWER + "\n")
    assert line.read() == FIXED
    first = done.stderr.splitlines()[0]
    for word in (str(line.repository), "script:any", "sandbox bubblewrap", "checks: ", "test_doubling.py"):
        assert word in first
    for word in (
        "plan: done",
        "work-1: edit_file doubling.py",
        "review-1: pass",
        "exit 1",
        "exit 0",
        "applied",
    ):
        assert word in done.stderr
    assert git(line.repository, "status", "--porcelain") == "M doubling.py"


def test_one_document(line: CommandLine) -> None:
    """`--json`: stdout is one document, the ended run; stderr has nothing to say."""
    done = line.run("run", "fix it", "--json")
    view = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (view["status"], view["output"], view["delivery"]["status"]) == ("completed", ANSWER, "delivered")


def test_a_record_for_each_event(line: CommandLine) -> None:
    """`--jsonl`: the stored events in order, from `run.queued` to the terminal, whose data is the run."""
    done = line.run("run", "fix it", "--jsonl")
    records = [json.loads(text) for text in done.stdout.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert (records[0]["type"], records[-1]["type"]) == ("run.queued", "run.completed")
    assert records[-1]["data"] == line.newest()
    assert done.stderr == ""
    shown = line.run("show", "--events")
    assert [json.loads(text) for text in shown.stdout.splitlines()] == records


def test_a_patch_only(line: CommandLine) -> None:
    """Nothing changes until the patch is applied by hand; undo takes it back; the run says both."""
    assert line.run("run", "fix it", "--patch-only").returncode == 0
    assert line.read() == BROKEN
    run = line.newest()["id"]
    patch = line.run("patch").stdout
    assert "+    return number * 2" in patch
    git(line.repository, "apply", "--check", "-", stdin=patch.encode())
    assert line.run("patch", run, "--apply").returncode == 0
    assert line.read() == FIXED
    assert line.newest()["delivery"] == {"mode": "apply", "status": "delivered", "ref": None}
    assert line.run("patch", run, "--apply").returncode == 0
    assert line.run("undo", run).returncode == 0
    assert line.read() == BROKEN
    assert line.newest()["delivery"] == {"mode": "patch", "status": "delivered", "ref": None}
    assert json.loads(line.run("show", run, "--json").stdout) == line.newest()
    assert line.run("undo", run).returncode == 2


def test_an_undo_never_overwrites(line: CommandLine) -> None:
    """What was edited since stays: nothing is taken back, exit 2; once it can be, the run says so."""
    line.run("run", "fix it")
    edited = FIXED + "# mine\n"
    (line.repository / "doubling.py").write_text(edited)
    done = line.run("undo", line.newest()["id"])
    assert (done.returncode, "doubling.py" in done.stderr) == (2, True)
    assert line.read() == edited
    assert line.newest()["delivery"]["status"] == "delivered"
    (line.repository / "doubling.py").write_text(FIXED)
    assert line.run("undo", line.newest()["id"]).returncode == 0
    assert line.newest()["delivery"] == {"mode": "patch", "status": "delivered", "ref": None}


def test_a_patch_applied_to_changed_files_is_a_conflict(line: CommandLine) -> None:
    """All or nothing: a file that was edited meanwhile keeps what it holds, exit 1."""
    line.run("run", "fix it", "--patch-only")
    (line.repository / "doubling.py").write_text("mine\n")
    done = line.run("patch", line.newest()["id"], "--apply")
    assert (done.returncode, "doubling.py" in done.stderr) == (1, True)
    assert line.read() == "mine\n"
    assert line.newest()["delivery"] == {"mode": "apply", "status": "conflict", "ref": None}


def test_what_nobody_reviewed_is_applied_only_when_asked(line: CommandLine) -> None:
    """Profile `direct` keeps a patch; applying it takes `--unreviewed`."""
    line.use(FIX, DONE)
    done = line.run("run", "fix it", "--profile", "direct")
    assert (done.returncode, done.stdout) == (0, "Fixed.\n")
    run = line.newest()["id"]
    assert line.run("patch", run, "--apply").returncode == 2
    assert line.read() == BROKEN
    assert line.run("patch", run, "--apply", "--unreviewed").returncode == 0
    assert line.read() == FIXED


REVISE = {"stage": "review", "json": {"decision": "reject", "output": "", "summary": "Not like this."}}
WORSE = {
    "stage": "work",
    "tool_calls": [
        {"name": "write_file", "arguments": {"relative_path": "doubling.py", "content": "syntax error(\n"}}
    ],
}
ENDS: dict[str, tuple[tuple[dict[str, Any], ...], tuple[str, ...], int, str]] = {
    "the provider refuses": (({"stage": "plan", "error": {"status": 401}},), (), 1, "provider/auth"),
    "out of time": ((PLAN, shell("sleep 30")), ("--timeout", "1500ms"), 3, "budget/wall_clock"),
    "rejected": ((PLAN, FIX, DONE, REVISE), (), 5, "rejected/rejected"),
    "no valid answer": (({"stage": "plan", "text": "hm"},) * 3, (), 1, "invalid_output/plan"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_exit_code_tells_the_end(line: CommandLine, case: str) -> None:
    """Each class of end has its exit code; stdout stays empty, and the files stay as they were."""
    replies, arguments, code, end = ENDS[case]
    line.use(*replies)
    done = line.run("run", "fix it", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert end in done.stderr
    assert line.read() == BROKEN
    assert "Traceback" not in done.stderr


def test_a_check_that_gets_worse_is_never_applied(line: CommandLine) -> None:
    """The gate's no is final after the revisions that are allowed: exit 5, nothing applied."""
    write(line.repository, {"doubling.py": FIXED})
    git(line.repository, "commit", "-q", "-a", "-m", "fixed")
    line.use(PLAN, WORSE, DONE, PASS, WORSE, DONE, PASS)
    done = line.run("run", "improve it")
    assert (done.returncode, line.read()) == (5, FIXED)
    assert "worse than before" in done.stderr


def test_uncommitted_work_is_part_of_the_base(line: CommandLine) -> None:
    """The run starts from what the user sees, and leaves index and other files alone."""
    write(line.repository, {"notes.txt": "mine\n", "doubling.py": BROKEN + "# draft\n"})
    assert line.run("run", "fix it").returncode == 0
    assert line.read() == FIXED + "# draft\n"
    assert line.read("notes.txt") == "mine\n"


def test_a_subfolder_is_the_working_folder(line: CommandLine) -> None:
    """Started in a folder below the root, commands run there."""
    inner = line.repository / "inner"
    write(line.repository, {"inner/x.txt": "x\n"})
    line.use(PLAN, shell("pwd > here.txt"), DONE, PASS)
    assert line.run("run", "look", cwd=inner).returncode == 0
    assert (inner / "here.txt").read_text().strip() == str(inner)


def test_a_prompt_from_stdin_and_from_a_file(line: CommandLine) -> None:
    """`-` and `--prompt-file` carry the text as it is."""
    text = "Fix it.\n\nWith \u00fcmlauts and \u2603.\n"
    line.run("run", "-", "--patch-only", stdin=text.encode())
    path = line.folder / "task.md"
    path.write_text(text)
    line.run("run", "--prompt-file", str(path), "--patch-only")
    prompts = [
        json.loads(line.run("show", run["id"], "--events").stdout.splitlines()[0])["data"]["request"][
            "prompt"
        ]
        for run in line.runs()
    ]
    assert prompts == [text, text]


def test_a_wider_cap_than_the_default(line: CommandLine) -> None:
    """5 USD hold when nobody says anything; what is typed counts in both directions."""
    for typed, cap in ((None, 5.0), ("2.50", 2.5), ("20", 20.0)):
        arguments = ("--max-cost", typed) if typed else ()
        line.run("run", "fix it", "--patch-only", *arguments)
        assert line.newest()["limits"]["max_cost_usd"] == cap


def test_output_with_control_codes(line: CommandLine) -> None:
    """R49: neither what a model says nor what a tool prints reaches a terminal raw."""
    hostile = "\x1b]0;owned\x07done\x1b[2J"
    line.use(
        PLAN,
        FIX,
        shell("printf '\\033]0;title\\007\\033[2Jred'; : \x1b[31m"),
        DONE,
        {"stage": "review", "json": {"decision": "pass", "output": hostile, "summary": hostile}},
    )
    done = line.run("run", "fix it")
    assert (done.returncode, done.stdout) == (0, "done\n")
    told = done.stderr + line.run("show", "--verbose").stdout + line.run("ps").stdout
    assert "\x1b" not in told
    assert "owned" not in done.stderr
    assert line.newest()["output"] == hostile


def test_a_reader_that_leaves_doesnt_stop_the_run(line: CommandLine) -> None:
    """A closed stdout costs the output alone: the run goes on to its end."""
    process = line.start("run", "fix it", "--jsonl")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert line.read() == FIXED
    assert "remit show" in said
    assert "BrokenPipe" not in said


def test_a_closed_stderr_doesnt_stop_the_run(line: CommandLine) -> None:
    """Nor does a stderr that nobody reads."""
    process = line.start("run", "fix it")
    assert process.stderr is not None
    process.stderr.close()
    assert process.stdout is not None
    assert process.stdout.read() == ANSWER + "\n"
    process.stdout.close()
    assert process.wait(60) == 0


def test_show_and_ps_while_it_goes_on(line: CommandLine) -> None:
    """Looking at a run that goes on changes nothing of it."""
    line.use(PLAN, FIX, shell("sleep 1.7"), DONE, PASS)
    process = line.start("run", "fix it", "--jsonl")
    assert process.stdout is not None
    while '"run_shell"' not in process.stdout.readline():
        pass
    assert "working" in line.run("ps").stdout
    shown = line.run("show")
    assert "run_shell sleep 1.7" in shown.stdout
    out, _ = process.communicate(timeout=60)
    assert json.loads(out.splitlines()[-1])["type"] == "run.completed"


def test_a_run_whose_process_died(line: CommandLine) -> None:
    """`ps` and `show` say so and leave it; the next run ends it, and only that."""
    line.use(PLAN, FIX, shell("sleep 6021"), DONE, PASS)
    process = line.start("run", "fix it", "--jsonl")
    assert process.stdout is not None
    while '"run_shell"' not in process.stdout.readline():
        pass
    process.kill()
    process.communicate()
    assert "died" in line.run("ps").stdout
    assert "process has died" in line.run("show").stdout
    assert line.newest()["status"] == "working"
    line.use(*GOOD)
    done = line.run("run", "fix it")
    assert done.returncode == 0
    assert "left behind" in done.stderr
    statuses = [run["status"] for run in line.runs()]
    assert statuses == ["completed", "indeterminate"]


def test_a_terminal_gets_a_tree(line: CommandLine) -> None:
    """On a terminal the progress is redrawn, and nothing of it is left but the picture of its end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "remit.cli", "run", "fix it"],
        cwd=line.repository,
        env=line.environment | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    told = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        told += piece
    os.close(ours)
    assert process.communicate(timeout=60)[0].decode() == ANSWER + "\n"
    text = told.decode()
    assert "\x1b[?25l" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "├─" in text
    assert "completed" in text


def test_settings_that_init_writes_work_untrusted(line: CommandLine) -> None:
    """`init` finds the check, never overwrites, and its file counts as it is."""
    written = line.run("init")
    assert written.returncode == 0
    again = line.run("init")
    assert (again.returncode, "stays as it is" in again.stderr) == (2, True)
    done = line.run("run", "fix it")
    assert done.returncode == 0, done.stderr
    assert "named by the workspace" in done.stderr
    assert line.read() == FIXED


def test_a_run_in_place_and_its_undo(line: CommandLine) -> None:
    """Promise 4 is off, which the first lines say; nothing is delivered; undo brings the tree back."""
    done = line.run("run", "make the test pass", "--in-place")
    assert done.returncode == 0, done.stderr
    assert "promise 4 is off" in done.stderr
    assert "YOUR FILES" in done.stderr
    assert "reviewed, in your files" in done.stderr
    assert "remit undo run_" in done.stderr
    assert "--apply" not in done.stderr
    (run,) = line.runs()
    view = json.loads(line.run("show", run["id"], "--json").stdout)
    assert view["workspace"]["isolation"] == "in_place"
    assert view["delivery"] is None
    assert view["patch"]["files"] == 1
    assert "number * 2" in (line.repository / "doubling.py").read_text()
    undone = line.run("undo", view["id"])
    assert undone.returncode == 0, undone.stderr
    assert (line.repository / "doubling.py").read_text() == BROKEN
    assert "reviewed, not applied" in line.run("show", run["id"]).stdout
    refused = line.run("run", "x", "--in-place", "--patch-only")
    assert (refused.returncode, "--in-place works on your files" in refused.stderr) == (2, True)


def test_the_doctor_attacks_the_sandbox(line: CommandLine) -> None:
    """R2, R36: a table of attacks at each level, in half a minute; 0 says that the level of a run holds."""
    done = line.run("doctor", "--sandbox")
    assert "use the network" in done.stdout, done.stderr
    assert "bubblewrap: GOT THROUGH" not in done.stdout
    if done.returncode:  # a machine that is too busy for all of them says so, and doesn't say that it holds
        assert "wasn't tried to the end" in done.stdout
    else:
        assert "The sandbox of a run here (bubblewrap) holds." in done.stdout
    assert not (line.folder / "home" / ".ssh").exists()


def test_the_doctor_says_whether_it_would_work(line: CommandLine) -> None:
    """Everything there: exit 0. No model: exit 1, and what to set; never a key's value."""
    kept = line.folder / "data/node/setups/one"
    kept.mkdir(parents=True)
    (kept / "done.json").write_text('{"notes": []}')
    good = line.run("doctor")
    assert "what 1 setup made takes 0 MiB" in good.stdout
    assert f"rm -r {kept.parent}" in good.stdout
    assert (good.returncode, "would work" in good.stdout) == (0, True), good.stdout
    line.use(more='[providers.vendor]\nkind = "openai"\napi_key_env = "VENDOR_KEY"\n')
    keyed = line.run("doctor", VENDOR_KEY="sk-very-secret")
    assert "VENDOR_KEY is set" in keyed.stdout
    assert "sk-very-secret" not in keyed.stdout + keyed.stderr
    (line.folder / "home" / "config" / "remit" / "remit.toml").unlink()
    bad = line.run("doctor")
    assert (bad.returncode, "OPENAI_API_KEY" in bad.stdout) == (1, True)
    assert line.run("doctor", PATH="/nowhere").returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "command",
    [
        *("ps", "ps --json", "show", "show --json", "show --events", "patch", "doctor"),
        *("run fix --dry-run", "--help", "--version", "run --help"),
    ],
)
def test_output_that_cant_be_kept_is_a_failure(line: CommandLine, command: str) -> None:
    """What stdout refuses is told by sentence and exit code, as stdout's: the disk may have room."""
    line.run("run", "fix it")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "remit.cli", *command.split()],
            cwd=line.repository,
            env=line.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    said = (
        "remit: stdout can't be written (No space left on device); "
        "send it elsewhere, or make room where it goes\n"
    )
    assert (done.returncode, done.stderr) == (1, said)


def test_too_little_of_an_id_is_no_run(line: CommandLine) -> None:
    """What every id begins with names none; enough of one does."""
    line.run("run", "fix it")
    run_id = json.loads(line.run("show", "--json").stdout)["id"]
    little = line.run("show", "run_")
    assert (little.returncode, little.stderr) == (
        2,
        "remit: `run_` is too little of an id; `remit ps` lists the runs that there are\n",
    )
    assert line.run("show", run_id[:16]).returncode == 0
    assert "no run `run_none`" in line.run("show", "run_none").stderr


def test_a_result_that_cant_be_written_is_kept(line: CommandLine) -> None:
    """The run itself goes on and is recorded; the exit code says that the result wasn't delivered."""
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "remit.cli", "run", "fix it"],
            cwd=line.repository,
            env=line.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = process.communicate(timeout=60)
    assert (process.returncode, line.read(), line.newest()["output"]) == (1, FIXED, ANSWER)
    assert "stdout can't be written" in said
