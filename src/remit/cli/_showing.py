"""What `remit demo` does: two runs on a small repository, and a look at whether what was promised is so."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree, which
from typing import Final

from rich.console import Console
from rich.text import Text

from remit.cli._cancelling import CancelInTool
from remit.cli._diff import coloured
from remit.cli._driving import Driver, Outcome
from remit.cli._formats import duration
from remit.cli._place import Place
from remit.cli._processes import still_there
from remit.cli._progress import logging_to, make_progress
from remit.cli._report import print_report
from remit.cli._screen import console_on, glyphs_of
from remit.cli._trees import changed_paths, read_tree
from remit.cli._words import plain, program_name, say
from remit.config import data_folder, load_config, make_data_folder
from remit.contract import RunRequest, RunView
from remit.errors import ConfigError
from remit.primitives import SystemClock

_MODEL: Final = "script:demo"
_REQUEST: Final = "Make the failing tests pass."
_REQUEST_TO_CANCEL: Final = "Make the failing tests pass, then wait for the release window."
_IDENTITY: Final = ("-c", "user.name=Remit demo", "-c", "user.email=demo@example.invalid")


def show_it() -> int:
    """The whole demonstration; 0 when everything that it shows was found to be so."""
    started = time.monotonic()
    show = _Show()
    make_data_folder(data_folder(os.environ))  # where it can't be, no repository is left behind either
    with as_file(files("remit.cli") / "demo" / "data") as data:
        folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="remit-demo-")))
        try:
            first = make_repository(data / "repository", folder / "slugs")
        except BaseException:
            rmtree(folder)
            raise
        show.say(f"A small repository with a failing test: {first}")
        completed = show.part("1. A run that completes", place_of(first, data / "replies.yaml"), _REQUEST)
        if completed.view is None:
            return completed.exit_code
        show.completed(completed, first)
        second = make_repository(data / "repository", folder / "slugs-again")
        cancelled = show.cancelled(second, place_of(second, data / "replies.yaml"))
        if cancelled.view is None:
            return cancelled.exit_code
        show.closing(completed.view, folder, started)
    return 0 if show.all_true else 1


def make_repository(source: Path, target: Path) -> Path:
    """A fresh copy of the bundled repository, with one commit."""
    git = which("git")
    if git is None:
        raise ConfigError("git isn't installed or not on PATH; install it, the demo's repository needs it")
    # Whatever installed the program may have put bytecode beside the repository's files.
    copytree(source, target, copy_function=_copy_plain, ignore=ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Add slugs")):
        done = subprocess.run(
            [git, *_IDENTITY, *arguments], cwd=target, env=environment, capture_output=True, check=False
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise ConfigError(f"git {arguments[0]} failed in {target}: {said}")
    return target


def _copy_plain(source: str, target: str) -> None:
    """A file with the usual mode, whatever the installed one has."""
    Path(target).write_bytes(Path(source).read_bytes())


def place_of(root: Path, script: Path) -> Place:
    """The repository with the scripted model, whatever the user's own settings are."""
    environment = {name: value for name, value in os.environ.items() if "__" not in name}
    if which("python3") is None:  # the one that runs this is as good
        environment["PATH"] = (
            f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
        )
    config = load_config(
        environment=environment | {"XDG_CONFIG_HOME": str(root.parent / "no-settings")},
        folder=root,
        repository=root,
        overrides={"providers": {"script": {"kind": "scripted", "script": str(script)}}},
    ).as_owner()
    config, workspace = config.with_folder(root)
    return Place(config=config, workspace=workspace, subdir=None, is_git=True)


class _Show:
    """What is told, and whether all of it is so."""

    def __init__(self) -> None:
        self._console: Console = console_on(sys.stdout)
        self._glyphs = glyphs_of(sys.stdout)
        self.all_true = True

    def say(self, text: str, *, style: str = "") -> None:
        """A line."""
        self._console.print(Text(text, style=style), soft_wrap=not self._console.is_terminal)

    def claim(self, text: str, is_so: bool) -> None:
        """Something that was promised, and whether it was found to be so."""
        self.all_true = self.all_true and is_so
        sign, style = (self._glyphs.done, "green") if is_so else (self._glyphs.failed, "bold red")
        line = Text.assemble((f"  {sign} ", style), text)
        self._console.print(line, soft_wrap=not self._console.is_terminal)

    def part(self, title: str, place: Place, prompt: str, *, cancel: CancelInTool | None = None) -> Outcome:
        """One run, from its title to its report."""
        self.say("")
        self.say(title, style="bold")
        self.say(f'  remit run "{prompt}"', style="cyan")
        self.say("")
        request = RunRequest.model_validate(
            {"prompt": prompt, "model": _MODEL, "workspace": {"ref": place.workspace.ref}}
        )
        progress = make_progress(sys.stdout, clock=SystemClock(), quiet=False)
        driver = Driver(place, request, progress=progress)
        if cancel is not None:
            driver.on_event, driver.on_start = cancel.on_event, cancel.on_start
        with logging_to(progress), progress:
            outcome = asyncio.run(driver.drive())
        if outcome.view is None:
            say("stopped")
            return outcome
        print_report(self._console, outcome.view, patch=outcome.patch, glyphs=self._glyphs)
        return outcome

    def completed(self, outcome: Outcome, root: Path) -> None:
        """The first run: answer, patch, and what must be so."""
        view = outcome.view
        assert view is not None, "there was a run"
        self.say("")
        if view.output:
            self.say("The reviewer's answer (all that `remit run` prints to stdout):", style="dim")
            self.say(plain(view.output))
            self.say("")
        if outcome.patch:
            self._console.print(coloured(outcome.patch), soft_wrap=True)
            self.say("")
        self.claim("plan, work and review went through, and the run completed", _is_completed(view))
        self.claim("the repository's own check failed before and passes now", _checks_turned(view))
        self.claim("exactly the reviewed change is in the repository", changed_paths(root) == ("slugs.py",))

    def cancelled(self, root: Path, place: Place) -> Outcome:
        """The second run: cancelled in the middle of a command."""
        before = read_tree(root)
        cancel = CancelInTool(tool="run_shell", program="sleep")
        outcome = self.part(
            "2. The same, cancelled in the middle of a command", place, _REQUEST_TO_CANCEL, cancel=cancel
        )
        view = outcome.view
        if view is None:
            return outcome
        after = read_tree(root)
        self.say("")
        ended = view.terminal is not None and view.terminal.kind == "cancelled"
        complete = view.cancel is not None and view.cancel.complete
        count = len(view.cancel.items) if view.cancel else 0
        self.claim(
            f"cancelled, with a receipt for each of {count} pieces of work",
            ended and complete,
        )
        self.claim(
            f"the repository is as it was, byte for byte ({before.count} files, sha256 {after.sha256[:12]}…)",
            before == after,
        )
        left = still_there(cancel.seen)
        named = ", ".join(sorted({process.name for process in cancel.seen}))
        self.claim(
            f"none of the {len(cancel.seen)} processes is left ({named})", bool(cancel.seen) and not left
        )
        return outcome

    def closing(self, view: RunView, folder: Path, started: float) -> None:
        """Where things are."""
        self.say("")
        took = duration((time.monotonic() - started) * 1000)
        self.say(f"That took {took}. Both repositories are kept in {folder}")
        self.say(f"`{program_name()} ps` lists both runs; this tells the first one step by step:")
        self.say(f"  {program_name()} show {view.id}", style="cyan")


def _is_completed(view: RunView) -> bool:
    delivered = view.delivery is not None and view.delivery.status == "delivered"
    reviewed = view.patch is not None and view.patch.reviewed
    return view.terminal is not None and view.terminal.kind == "completed" and delivered and reviewed


def _checks_turned(view: RunView) -> bool:
    return bool(view.checks) and all(
        check.base_exit not in (0, None) and check.exit == 0 for check in view.checks
    )
