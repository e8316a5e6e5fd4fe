"""What `remit doctor --sandbox` does: tries the attacks at each level that works here, and prints a table."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from remit.cli._place import find_place
from remit.cli._screen import console_on
from remit.config import data_folder
from remit.contract import SandboxLevel
from remit.errors import RemitError
from remit.node_agent import node_folder
from remit.testing.attacks import ATTACKS, GROUPS, KNOWN_OPEN, Tried, applies
from remit.workspaces import Keeper, Probe, SandboxWanted, choose_sandbox

_TIME_S: Final = 22.0
"""For the attacks; starting and ending take a little more."""
_ENDING_S: Final = 5.0
_NAMED: Final = 12


@dataclass(slots=True)
class Level:
    """What came of one level."""

    name: SandboxLevel
    problem: str | None
    """Why it can't be used here."""
    tried: dict[str, Tried] = field(default_factory=dict[str, Tried])

    def named(self, *verdicts: str) -> list[str]:
        """The attacks that came out so."""
        return [name for name, tried in self.tried.items() if tried.verdict in verdicts]

    @property
    def unexpected(self) -> list[str]:
        """What got through although the level is said to hold it."""
        return [name for name in self.named("open") if name not in KNOWN_OPEN.get(self.name, frozenset())]

    @property
    def holds(self) -> bool:
        """Whether everything was tried and nothing unexpected got through."""
        wanted = sum(applies(attack) for attack in ATTACKS)
        return len(self.tried) == wanted and not self.unexpected and not self.named("not tried")


def examine_sandbox(wanted: str | None) -> int:
    """Attack what would hold a run's commands; 0 when the level that a run would use holds."""
    return asyncio.run(_examine(wanted))


async def _examine(wanted: str | None) -> int:
    console = console_on(sys.stdout)
    setting, probe = _wanted_level(wanted), await _probe()
    levels = [Level("bubblewrap", probe.bubblewrap_problem), Level("landlock", probe.landlock_problem)]
    try:
        default = choose_sandbox(setting, probe, allow_unconfined=True)
    except RemitError as error:
        console.print(Text(f"No sandbox: {error.message}", style="bold red"))
        return 1
    usable = [level for level in levels if level.problem is None]
    usable.sort(key=lambda level: level.name != default)
    began = time.monotonic()
    for number, level in enumerate(usable):
        # The level that counts has most of the time; a slow machine tries less of the others.
        share = _TIME_S * 0.7 if number == 0 and len(usable) > 1 else _TIME_S - (time.monotonic() - began)
        await _attack(level, max(1.0, share), _progress(level))
    _clear_progress()
    console.print(_table(levels))
    for level in levels:
        explain(level, console.print)
    return conclude(default, levels, console.print)


def _wanted_level(wanted: str | None) -> SandboxWanted:
    try:
        return find_place(wanted=wanted, config_file=None).workspace.sandbox
    except RemitError:
        return "auto"


async def _probe() -> Probe:
    data = node_folder(data_folder(os.environ))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with await Keeper.start(data=data.resolve()) as keeper:
        return keeper.probe


async def _attack(level: Level, time_s: float, progress: Callable[[], None]) -> None:
    """Tries them in a process of its own, with made-up secrets and a home folder that goes away again."""
    base = await asyncio.to_thread(_make_folder)
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    environment |= {"HOME": str(base / "home"), "MADE_UP_API_KEY": "sk-made-up"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "remit.testing.attacks", level.name, str(base), str(time_s)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(time_s + _ENDING_S):
            await _read(process, level, progress)
            await process.wait()
    except TimeoutError:
        pass  # what wasn't told counts as not tried
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        await asyncio.to_thread(shutil.rmtree, base, ignore_errors=True)


def _make_folder() -> Path:
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="remit-attacks-")))


async def _read(process: asyncio.subprocess.Process, level: Level, progress: Callable[[], None]) -> None:
    stream = process.stdout
    while stream is not None and (line := await stream.readline()):
        tried = Tried(**json.loads(line))
        level.tried[tried.attack] = tried
        progress()


# ---- what is shown


def _progress(level: Level) -> Callable[[], None]:
    total = sum(applies(attack) for attack in ATTACKS)

    def show() -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{level.name}: {len(level.tried)} of {total} attacks \x1b[K")
            sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _table(levels: list[Level]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("an attack wants to")
    for level in levels:
        table.add_column(level.name)
    for title, attacks in GROUPS.items():
        names = [attack.name for attack in attacks if applies(attack)]
        table.add_row(title, *(_cell(level, names) for level in levels))
    return table


def _cell(level: Level, names: list[str]) -> Text:
    if level.problem is not None:
        return Text("-", style="dim")
    got = level.named("open")
    held = sum(name in level.named("held") for name in names)
    through = sum(name in got for name in names)
    bad = any(name in level.unexpected for name in names)
    text = f"{held} of {len(names)} stopped"
    return Text(text, style="red" if bad else "yellow" if through or held < len(names) else "green")


def explain(level: Level, show: Callable[[Text], None]) -> None:
    """Name what wasn't stopped at a level."""
    if level.problem is not None:
        show(Text(f"{level.name}: not here: {level.problem}", style="dim"))
        return
    known = [name for name in level.named("open") if name not in level.unexpected]
    for words, names, style in (
        ("GOT THROUGH", level.unexpected, "bold red"),
        ("left open, as is said", known, "yellow"),
        ("not tried in the time", level.named("not tried"), "yellow"),
    ):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            show(Text(f"{level.name}: {words}: {', '.join(names[:_NAMED])}{more}", style=style))


def conclude(default: SandboxLevel, levels: list[Level], show: Callable[[Text], None]) -> int:
    """Say whether the level that a run would use holds; the exit code."""
    found = next((level for level in levels if level.name == default), None)
    if found is None:
        show(Text(f"A run here uses {default}: nothing of Remit's holds its commands.", style="bold red"))
        return 1
    if found.holds:
        show(Text(f"The sandbox of a run here ({default}) holds.", style="bold green"))
        return 0
    why = "doesn't hold" if found.unexpected else "wasn't tried to the end; try again on a quieter machine"
    show(Text(f"The sandbox of a run here ({default}) {why}.", style="bold red"))
    return 1
