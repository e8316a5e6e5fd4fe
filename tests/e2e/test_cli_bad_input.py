"""What may be typed or lie around that can't work: one sentence, the right exit code, nothing half-done."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cli_kit import BROKEN, CommandLine
from git_repository import write
from remit.workspaces.keeper._landlock import landlock_version


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A user with a scripted model."""
    return CommandLine.make(tmp_path)


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """One sentence on stderr with these words, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("remit: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0], (word, lines[0])


TYPED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown command": (("rnu", "x"), ("rnu", "--help")),
    "unknown flag": (("run", "x", "--dry-rum"), ("--dry-rum", "remit run --help")),
    "no prompt": (("run",), ("say what is to be done",)),
    "empty prompt": (("run", ""), ("empty",)),
    "blank prompt": (("run", " \n\t "), ("empty",)),
    "two prompts": (("run", "x", "y"), ("unexpected extra argument",)),
    "prompt and file": (("run", "x", "--prompt-file", "f"), ("not both",)),
    "no such file": (("run", "--prompt-file", "absent.md"), ("absent.md", "can't be read")),
    "a folder as file": (("run", "--prompt-file", "."), ("is a folder",)),
    "no such folder": (("run", "x", "-w", "absent"), ("absent", "existing folder")),
    "a file as folder": (("run", "x", "-w", "doubling.py"), ("is a file",)),
    "both deliveries": (("run", "x", "--apply", "--patch-only"), ("exclude each other",)),
    "both forms": (("run", "x", "--json", "--jsonl"), ("exclude each other",)),
    "no money": (("run", "x", "--max-cost", "0"), ("--max-cost", "above 0")),
    "negative money": (("run", "x", "--max-cost", "-1"), ("--max-cost", "above 0")),
    "not money": (("run", "x", "--max-cost", "cheap"), ("--max-cost", "2.50")),
    "NaN money": (("run", "x", "--max-cost", "nan"), ("--max-cost",)),
    "no time": (("run", "x", "--timeout", "0"), ("length of time",)),
    "not time": (("run", "x", "--timeout", "soon"), ("30m",)),
    "unknown profile": (("run", "x", "--profile", "fast"), ("fast",)),
    "unknown binding": (("run", "x", "-b", "absent"), ("absent",)),
    "model without provider": (("run", "x", "--model", "gpt"), ("gpt", "NAME:MODEL")),
    "unknown provider": (("run", "x", "--model", "nobody:gpt"), ("nobody",)),
    "provider without key": (("run", "x", "--model", "openai:gpt-5.2"), ("OPENAI_API_KEY",)),
    "review model without key": (("run", "x", "--review-model", "openai:gpt-5.2"), ("OPENAI_API_KEY",)),
    "no such config": (("run", "x", "--config", "absent.toml"), ("absent.toml",)),
    "direct applies unreviewed": (("run", "x", "--profile", "direct", "--apply"), ("unreviewed",)),
    "no such base": (("run", "x", "--base", ""), ("base",)),
    "no such run": (("show", "run_ABSENT"), ("no runs yet",)),
    "undo of nothing": (("undo", "run_ABSENT"), ("no runs yet",)),
    "undo without run": (("undo",), ("RUN",)),
    "apply without run": (("patch", "--apply"), ("name the run",)),
    "no file to trust": (("trust",), ("remit.toml",)),
}


@pytest.mark.parametrize("case", TYPED)
def test_what_is_typed_wrong_is_refused_in_one_sentence(line: CommandLine, case: str) -> None:
    """Bad input costs a sentence that says what to do, and exit 2; nothing is stored."""
    arguments, words = TYPED[case]
    refused(line.run(*arguments), *words)
    assert line.read() == BROKEN
    assert line.runs() == []


LARGE = b"x" * (5 * 1024 * 1024)
PROMPTS = {
    "0 bytes": (b"", "empty"),
    "5 MB": (LARGE, "1,048,576 bytes"),
    "a binary file": (b"\x7fELF\x02\x01\x00\xff\xfe", "isn't UTF-8"),
    "NUL bytes": (b"do\0it", "NUL"),
}


@pytest.mark.parametrize("case", PROMPTS)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_prompt_that_cant_be_one(line: CommandLine, case: str, way: str) -> None:
    """0 bytes, 5 MB and binary data are refused whichever way they come."""
    data, word = PROMPTS[case]
    path = line.folder / "prompt"
    path.write_bytes(data)
    done = line.run("run", "-", stdin=data) if way == "stdin" else line.run("run", "--prompt-file", str(path))
    refused(done, word)


def test_stdin_is_read_only_when_asked(line: CommandLine) -> None:
    """A pipe that nobody named isn't taken for the prompt."""
    refused(line.run("run", stdin=b"fix it"), "say what is to be done")


SETTINGS = {
    "not TOML": ("a = = 1\n", ("line 1",)),
    "unknown table": ("[surprise]\na = 1\n", ("surprise", "no such setting")),
    "unknown key": (
        '[providers.x]\nkind = "openai-compatible"\nbase_urls = "y"\n',
        ("providers.x.base_urls",),
    ),
    "a key written inline": ('[providers.x]\nkind = "openai"\napi_key = "sk-secret"\n', ("api_key",)),
    "unknown kind": ('[pools.default]\nmembers = [{ model = "x" }]\n', ("pools.default",)),
    "not UTF-8": ("\udcff", ("UTF-8",)),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_malformed_settings_name_the_place(line: CommandLine, case: str) -> None:
    """A file that can't be read is named with its line, a wrong key with its path; no secret is repeated."""
    text, words = SETTINGS[case]
    path = line.folder / "bad.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = line.run("run", "x", "--config", str(path))
    refused(done, "bad.toml", *words)
    assert "sk-secret" not in done.stderr


def test_an_untrusted_file_in_the_repository(line: CommandLine) -> None:
    """What a repository says of providers counts only after `remit trust`, and only as long as it stays."""
    settings = line.repository / "remit.toml"
    settings.write_text('[providers.evil]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"\n')
    refused(line.run("run", "x"), "providers", f"remit trust {settings}")
    looked = line.run("trust", "--show")
    assert looked.returncode == 0
    assert "base_url" in looked.stdout
    refused(line.run("run", "x"), "providers")
    assert line.run("trust").returncode == 0
    assert line.run("run", "fix it").returncode == 0
    settings.write_text(settings.read_text() + "# changed\n")
    refused(line.run("run", "x"), "providers", "remit trust")


def test_a_model_that_nobody_priced(line: CommandLine) -> None:
    """A money cap can't be kept without a price: refused before anything is sent."""
    line.use(more='[providers.near]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"\n')
    refused(line.run("run", "x", "--model", "near:unheard-of"), "price")


def test_no_model_at_all(line: CommandLine) -> None:
    """Without key, settings or local server the sentence says what to set."""
    shutil.rmtree(line.folder / "home" / "config")
    refused(line.run("run", "x"), "OPENAI_API_KEY", "--model")


# ---- folders


def test_a_home_folder(line: CommandLine) -> None:
    """A home folder is never a workspace."""
    refused(line.run("run", "x", cwd=line.folder / "home"), "home folder")


def test_the_root_of_all(line: CommandLine) -> None:
    """Nor is `/`."""
    refused(line.run("run", "x", "-w", "/"), "/ can't be a workspace")


def test_a_folder_that_is_no_repository(line: CommandLine) -> None:
    """It is allowed, and said."""
    plain = line.folder / "plain"
    plain.mkdir()
    write(plain, {"doubling.py": BROKEN})
    done = line.run("run", "fix it", cwd=plain)
    assert done.returncode == 0, done.stderr
    assert "isn't a git repository" in done.stderr
    assert "number * 2" in (plain / "doubling.py").read_text()


def test_a_folder_that_is_gone(line: CommandLine) -> None:
    """The current folder may have been removed meanwhile."""
    gone = line.folder / "gone"
    gone.mkdir()
    script = (
        f"import os, sys; os.rmdir({str(gone)!r}); from remit.cli import main; sys.exit(main(['run', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=gone,
        env=line.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    refused(done, "current folder is gone")


def test_a_broken_repository(line: CommandLine) -> None:
    """A `.git` that is none is named; nothing is stored."""
    (line.repository / ".git" / "HEAD").unlink()
    done = line.run("run", "x")
    assert done.returncode in (1, 2)
    assert "HEAD" in done.stderr
    assert "Traceback" not in done.stderr


def like_anybody() -> tuple[str, ...]:
    """A prefix under which root, too, may read only what its modes allow."""
    powers = "-dac_override,-dac_read_search"
    return ("setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}") if os.geteuid() == 0 else ()


def test_an_unreadable_folder(line: CommandLine) -> None:
    """A folder that can't be read is refused."""
    line.repository.chmod(0o000)
    try:
        done = subprocess.run(
            [*like_anybody(), sys.executable, "-m", "remit.cli", "run", "x", "-w", str(line.repository)],
            cwd=line.folder,
            env=line.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        refused(done, "can't be")
    finally:
        line.repository.chmod(0o755)


# ---- the machine


def test_no_git(line: CommandLine) -> None:
    """Without git a repository can't be worked on, and the sentence says so."""
    empty = line.folder / "bin"
    empty.mkdir()
    refused(line.run("run", "x", PATH=str(empty)), "git isn't installed")


def without_namespaces() -> list[str] | None:
    """A prefix that starts a program where no user namespace can be made; None: not to be had here."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return None
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    probe = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    done = subprocess.run([*probe, "true"], capture_output=True, check=False)
    return probe if done.returncode == 0 else None


def test_no_sandbox(line: CommandLine) -> None:
    """No sandbox of the kind that was asked for, no run: exit 2 with the command that fixes it."""
    prefix = without_namespaces()
    if prefix is None:
        pytest.skip("user namespaces can't be switched off for one process here")
    workspace = (
        f'[[nodes.local.workspaces]]\nref = "app"\nroot = "{line.repository}"\nsandbox = "bubblewrap"\n'
    )
    line.use(more=workspace)
    refused(run_with(prefix, line), "can't be sandboxed", "Fix: ")
    assert line.runs() == []


def run_with(prefix: list[str], line: CommandLine) -> subprocess.CompletedProcess[str]:
    """`remit run x`, started by another program."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "remit.cli", "run", "x"],
        cwd=line.repository,
        env=line.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_where_no_namespace_can_be_made_landlock_holds_a_whole_run(line: CommandLine) -> None:
    """The step down is told in the first lines, with what it leaves open; the run works and is applied."""
    prefix = without_namespaces()
    if prefix is None or landlock_version() < 3:
        pytest.skip("user namespaces can't be switched off for one process here, or there is no Landlock")
    done = run_with(prefix, line)
    assert done.returncode == 0, done.stderr
    assert "sandbox landlock" in done.stderr
    assert "It leaves open: " in done.stderr
    assert "number * 2" in (line.repository / "doubling.py").read_text()


def test_a_data_folder_that_cant_be_used(line: CommandLine) -> None:
    """A data folder that is a file is named, with what to do."""
    path = line.folder / "file"
    path.write_text("")
    refused(line.run("run", "x", REMIT_HOME=str(path)), str(path), "REMIT_HOME")


def test_another_programs_database(line: CommandLine) -> None:
    """A database that isn't ours stays as it is."""
    data = line.folder / "data"
    data.mkdir()
    with sqlite3.connect(data / "remit.db") as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    for command in (("run", "x"), ("ps",), ("show",)):
        done = line.run(*command)
        assert done.returncode in (1, 2)
        assert "another program" in done.stderr
        assert "Traceback" not in done.stderr
    with sqlite3.connect(data / "remit.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


@pytest.mark.parametrize("command", ["ps", "show"])
def test_looking_makes_nothing(line: CommandLine, command: str) -> None:
    """`ps` and `show` change nothing, also where there is no data folder at all."""
    line.run(command)
    assert not (line.folder / "data").exists()


def test_no_space(line: CommandLine) -> None:
    """A full disk is said as such; the tree stays whole."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a small file system can be mounted as root only")
    data = line.folder / "data"
    data.mkdir(mode=0o700)
    script = f'mount -t tmpfs -o size=600k,mode=700 none {data} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "remit.cli", "run", "x"],
        cwd=line.repository,
        env=line.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    if "must be superuser" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip("nothing can be mounted here")
    assert done.returncode != 0
    assert "full" in done.stderr
    assert "Traceback" not in done.stderr
    assert line.read() == BROKEN


def test_debugging_shows_where(line: CommandLine) -> None:
    """REMIT_DEBUG=1 is the one way to a traceback."""
    done = line.run("run", "x", "--timeout", "soon", REMIT_DEBUG="1")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "command", ["", "run", "show", "patch", "ps", "undo", "init", "trust", "doctor", "demo"]
)
def test_help_teaches(line: CommandLine, command: str) -> None:
    """Each command's help has an example of it."""
    done = line.run(*filter(None, [command, "--help"]))
    assert done.returncode == 0
    assert f"remit {command}".strip() in done.stdout.partition("\n")[2]
    assert all(len(text) <= 100 for text in done.stdout.splitlines())


def test_the_version(line: CommandLine) -> None:
    """`--version` names program and version."""
    assert line.run("--version").stdout.startswith("remit 0.")


@pytest.mark.parametrize("command", [("run", "x"), ("doctor",), ("run", "x", "--patch-only")])
def test_a_data_folder_inside_the_repository(line: CommandLine, command: tuple[str, ...]) -> None:
    """R55: it is refused before anything of it is made, also where its parent isn't there yet."""
    inside = line.repository / "deep" / "data"
    done = line.run(*command, REMIT_HOME=str(inside))
    assert done.returncode == (1 if command == ("doctor",) else 2), done.stderr
    assert f"the data folder {inside} lies inside {line.repository}" in done.stdout + done.stderr
    assert "set REMIT_HOME" in done.stdout + done.stderr
    assert not (line.repository / "deep").exists()


@pytest.mark.parametrize("command", [("run", "x"), ("ps",), ("show",), ("doctor",)])
def test_a_file_that_is_no_database(line: CommandLine, command: tuple[str, ...]) -> None:
    """R55, S84: garbage where the runs are kept is named, with what to do, and stays as it is."""
    data = line.folder / "data"
    data.mkdir()
    garbage = b"not a database at all\n" * 500
    (data / "remit.db").write_bytes(garbage)
    done = line.run(*command)
    assert done.returncode == 1, (done.stdout, done.stderr)
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{data / 'remit.db'} is damaged or no database" in said
    assert "set REMIT_HOME to another folder" in said
    assert "Traceback" not in said
    assert (data / "remit.db").read_bytes() == garbage


def test_receipts_that_are_no_database(line: CommandLine) -> None:
    """R55: garbage where the node keeps its receipts is named, with what to do."""
    node = line.folder / "data" / "node"
    node.mkdir(parents=True)
    (node / "receipts.sqlite").write_bytes(b"not a database at all\n" * 500)
    done = line.run("run", "x")
    assert done.returncode == 1
    assert "node/receipts.sqlite" in done.stderr
    assert "move it away" in done.stderr
