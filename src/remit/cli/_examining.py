"""What `remit doctor` does: looks at everything that a run needs, one finding after another."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rich.text import Text

import remit
from remit.cli._formats import count
from remit.cli._place import Place, find_place, with_model
from remit.cli._screen import console_on, glyphs_of
from remit.cli._words import broken_at_words, one_line
from remit.config import Config, data_folder, make_data_folder, refuse_data_inside, user_config_file
from remit.contract import RunRequest
from remit.errors import RemitError
from remit.node_agent import node_folder
from remit.storage import StoreReader
from remit.workspaces import (
    Keeper,
    check_root,
    choose_sandbox,
    describe_network,
    find_toolchains,
    read_secrets,
    sandbox_fix,
    sandbox_notes,
    setups_kept,
)

State = Literal["good", "note", "bad"]
_LITTLE_BYTES: Final = 500 * 1024 * 1024
_OLDEST_GIT: Final = (2, 25)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    state: State
    text: str
    fix: str | None = None
    """The one command, or the one thing to do."""


def examine(wanted: str | None) -> int:
    """Look at everything; 1 when a run couldn't work."""
    findings = asyncio.run(_collect(wanted))
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    looks = {
        "good": (glyphs.done, "green"),
        "note": (glyphs.waiting, "yellow"),
        "bad": (glyphs.failed, "red"),
    }
    for finding in findings:
        sign, style = looks[finding.state]
        text = one_line(finding.text, width=1_000)
        if console.is_terminal:
            text = broken_at_words(text, columns=console.width - 2).replace("\n", "\n  ")
        console.print(Text.assemble((sign + " ", style), text), soft_wrap=True)
        if finding.fix is not None:
            console.print(
                Text.assemble("    fix: ", (one_line(finding.fix, width=500), "cyan")), soft_wrap=True
            )
    bad = sum(finding.state == "bad" for finding in findings)
    console.print()
    if bad:
        console.print(Text(f"A run wouldn't work here: {bad} of these must be put right.", style="bold red"))
        return 1
    console.print(Text("A run would work here.", style="bold green"))
    return 0


async def _collect(wanted: str | None) -> list[Finding]:
    findings = [*_program(), _git()]
    try:
        place = find_place(wanted=wanted, config_file=None)
    except RemitError as error:
        stored = list(_data([]))
        findings += [*stored, Finding("bad", f"settings: {error.message}")]
        findings += [finding async for finding in _sandbox(None, data=_usable(stored))]
        return findings
    stored = list(_data([place.workspace.root, *(one.root for one in place.config.workspaces.values())]))
    findings += stored
    findings += _settings(place)
    findings += _workspace(place)
    findings += [finding async for finding in _sandbox(place, data=_usable(stored))]
    findings += _toolchains(place)
    findings += _setup_and_secrets(place)
    findings += _models(place)
    return findings


def _program() -> Iterator[Finding]:
    yield Finding(
        "good", f"remit {remit.__version__}, Python {platform.python_version()} at {sys.executable}"
    )
    if os.geteuid() == 0:
        yield Finding("note", "running as root: it works, a user of its own is safer")


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("bad", "git isn't on PATH", fix=_install("git"))
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("bad", f"git at {path} doesn't run: {error}", fix=_install("git"))
    words = said.split()
    numbers = words[2].split(".") if len(words) > 2 else []
    version = tuple(int(part) for part in numbers[:2] if part.isdigit())
    if version < _OLDEST_GIT:
        return Finding("bad", f"{said.strip()} is too old; 2.25 or newer is needed", fix=_install("git"))
    return Finding("good", f"{said.strip()} at {path}")


def _data(roots: Sequence[Path]) -> Iterator[Finding]:
    path = data_folder(os.environ)
    try:
        refuse_data_inside(path, roots)
        make_data_folder(path)
    except RemitError as error:
        yield Finding("bad", error.message, fix="export REMIT_HOME=/a/folder/of/yours")
        return
    free = shutil.disk_usage(path).free
    text = f"data folder {path}, {free / 2**30:.1f} GiB free, SQLite {sqlite3.sqlite_version}"
    if free < _LITTLE_BYTES:
        yield Finding("note", f"{text}: that is little", fix=f"make room below {path}")
    else:
        yield Finding("good", text)
    yield from _stored(path)
    yield from _kept_of_setup(node_folder(path))


def _stored(path: Path) -> Iterator[Finding]:
    """What is wrong with what lies in the data folder; nothing where nothing is."""
    try:
        reader = StoreReader.open(path)
    except RemitError as error:
        aside = f"mv {path / 'remit.db'} {path / 'remit.db.aside'}"
        yield Finding("bad", f"stored runs: {error.message}", fix=aside)
        return
    if reader is not None:
        reader.close()


def _kept_of_setup(node: Path) -> Iterator[Finding]:
    """What setup commands have made; nothing where nothing is kept."""
    kept = setups_kept(node)
    if kept.count:
        clear = f"rm -r {shlex.quote(str(kept.folder))}"
        text = f"what {count(kept.count, 'setup')} made takes {kept.size_bytes / 2**20:.0f} MiB"
        yield Finding("good", f"{text}; `{clear}` clears it while no run works, and it is made again")


def _settings(place: Place) -> Iterator[Finding]:
    files = place.config.files
    if files:
        order = " (a later one wins)" if len(files) > 1 else ""
        yield Finding("good", f"settings from {', '.join(map(str, files))}{order}")
    else:
        own = user_config_file(os.environ)
        yield Finding("good", f"no settings file; the defaults hold (yours would be {own})")


def _workspace(place: Place) -> Iterator[Finding]:
    root = place.workspace.root
    kind = "git repository" if place.is_git else "not a git repository, which is allowed"
    try:
        check_root(root)
    except RemitError as error:
        yield Finding("bad", f"workspace: {error.message}", fix="cd into the folder of one project")
        return
    if os.access(root, os.W_OK):
        yield Finding("good", f"workspace {root} ({kind})")
    else:
        yield Finding("note", f"workspace {root} can't be written to", fix="remit run ... --patch-only")


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def _usable(stored: Sequence[Finding]) -> bool:
    return all(finding.state != "bad" for finding in stored)


async def _sandbox(place: Place | None, *, data: bool) -> AsyncIterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="remit-doctor-") as aside:
        folder = node_folder(data_folder(os.environ)) if data else Path(aside)
        async for finding in _sandbox_at(folder, place):
            yield finding


async def _sandbox_at(data: Path, place: Place | None) -> AsyncIterator[Finding]:
    try:
        keeper = await Keeper.start(data=_made(data))
    except (RemitError, OSError) as error:
        yield Finding("bad", f"the process that holds checkouts doesn't start: {error}")
        return
    try:
        probe = keeper.probe
    finally:
        await keeper.aclose()
    wanted = "auto" if place is None else place.workspace.sandbox
    try:
        level = choose_sandbox(wanted, probe, allow_unconfined=False)
    except RemitError as error:
        yield Finding(
            "bad", f"sandbox: {error.message}", fix=str(error.fields.get("fix") or sandbox_fix(probe))
        )
    else:
        program = f", {probe.bubblewrap}" if level == "bubblewrap" else ""
        notes = sandbox_notes(level, probe)
        yield Finding("note" if notes else "good", "; ".join(notes) or f"sandbox {level}{program}")
        yield Finding("good", "`remit doctor --sandbox` attacks it, to see whether it holds")
    if probe.overlay_problem is None:
        yield Finding("good", "isolation: overlay (a copy costs nothing, whatever the size)")
    else:
        yield Finding("note", f"isolation: copy, since no overlay can be mounted: {probe.overlay_problem}")
    if os.geteuid() == 0 and probe.cgroup is None:
        yield Finding("note", f"the number of a command's processes isn't bounded: {probe.cgroup_note}")


def _toolchains(place: Place) -> Iterator[Finding]:
    settings = place.workspace
    found = find_toolchains(
        settings.root,
        environ=os.environ,
        data=node_folder(place.config.data),
        wanted=settings.toolchains,
        path=settings.path,
        mounts=settings.mounts,
        executables=[command.executable for command in settings.commands],
    )
    tools = [item for item in found.items if item.folder not in found.caches]
    if not tools:
        yield Finding("good", "toolchains that commands see: those of the system")
    for item in tools:
        yield Finding("good", f"commands see {item.kind} {item.folder} ({item.why})")
    for cache in found.caches:
        yield Finding("good", f"commands see {cache}; what a run adds to it stays the run's own")
    for path in found.masked:
        yield Finding("good", f"covered, since it may hold credentials: {path}")
    for refused in found.refused:
        yield Finding("note", f"not shown to commands: {refused.folder}: {refused.reason}")


def _setup_and_secrets(place: Place) -> Iterator[Finding]:
    """Whether each secret is there, never what it is; and what is run first."""
    settings = place.workspace
    for secret in settings.secrets:
        try:
            read_secrets([secret], environment=place.config.environment)
        except RemitError as error:
            yield Finding("bad", error.message)
        else:
            yield Finding("good", f"secret {secret.name} is there, for {', '.join(secret.to)}")
    if settings.setup:
        network = settings.network if settings.setup_network is None else settings.setup_network
        lines = "; ".join(settings.setup)
        yield Finding("good", f"setup, once for each base: {lines} (network {describe_network(network)})")
    yield Finding("good", f"network of commands: {describe_network(settings.network)}")


def _models(place: Place) -> Iterator[Finding]:
    config = place.config
    yield from (_provider(config, name) for name in sorted(config.providers))
    try:
        ready = with_model(place, RunRequest(prompt="x"))
    except RemitError as error:
        yield Finding("bad", error.message, fix="export OPENAI_API_KEY=... (or name a model with --model)")
        return
    pool = ready.config.pools.get("default")
    for member in pool.members if pool is not None else ():
        try:
            ready.config.check_model(member.model)
        except RemitError as error:
            yield Finding("bad", f"model {member.model}: {error.message}")
        else:
            yield Finding("good", f"model {member.model}: {_why(ready, place)}")


def _why(ready: Place, place: Place) -> str:
    notes = ready.notes[len(place.notes) :]
    return notes[0].partition(", ")[2] or notes[0] if notes else "as pool `default` says"


def _provider(config: Config, name: str) -> Finding:
    table = config.providers[name]
    try:
        settings = config.get_provider(name)
    except RemitError as error:
        return Finding("note", f"provider {name} ({table.kind}): {error.message}")
    key = "no key needed"
    if settings.aws is not None:
        key = f"the AWS account's credentials {settings.aws.access_key_id}, in {settings.location}"
    elif table.api_key_env is not None:
        key = f"{table.api_key_env} is set"
    elif table.api_key_file is not None:
        key = f"key file {table.api_key_file}"
    elif settings.api_key is not None:
        key = "a key of its own variable is set"
    return Finding("good", f"provider {name} ({table.kind}): {key}")


def _install(package: str) -> str:
    prefix = "" if os.geteuid() == 0 else "sudo "
    for program, command in (
        ("apt-get", "apt-get install -y"),
        ("dnf", "dnf install -y"),
        ("apk", "apk add"),
        ("pacman", "pacman -S --noconfirm"),
        ("zypper", "zypper install -y"),
        ("brew", "brew install"),
    ):
        if shutil.which(program):
            return f"{prefix if program != 'brew' else ''}{command} {package}"
    return f"install {package}"
