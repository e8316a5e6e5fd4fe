"""Tries every attack at one level, one after the other, within a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from remit.contract import SandboxLevel
from remit.testing.attacks._attack import Attack
from remit.testing.attacks._catalog import ATTACKS
from remit.testing.attacks._kernel_attacks import BOUNDS
from remit.testing.attacks._world import World, applies

__all__ = ["KNOWN_OPEN", "Tried", "try_attacks"]

Verdict = Literal["held", "open", "not tried"]
_ATTACK_MS: Final = 8_000
_AT_ONCE: Final = 6

KNOWN_OPEN: Final[dict[SandboxLevel, frozenset[str]]] = {
    "landlock": frozenset(
        ("read_users", "arguments_any", "see_victim", "see_zygote", "fork_bomb", "thread_bomb")
    ),
}
"""What a level is known, and said, not to hold."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one attack."""

    attack: str
    verdict: Verdict
    ms: int
    said: str = ""
    """The end of what it printed, where it got through."""


async def try_attacks(
    level: SandboxLevel, base: Path, *, time_s: float, tell: Callable[[Tried], None]
) -> None:
    """Try all attacks that mean anything here, at one level.

    HOME must lie in `base`, and the environment must hold no secret but made-up ones.

    Args:
        level: What is attacked.
        base: An empty folder with a real path, which is the caller's to remove.
        time_s: For all of them; those that are left then are told as not tried.
        tell: Is told of each, as it ends.
    """
    ends = time.monotonic() + time_s
    world = World(base, level=level, timeout_ms=_ATTACK_MS)
    world.build_files()
    try:
        await world.open()
        wanted = [attack for attack in ATTACKS if applies(attack)]
        alone = [attack for attack in wanted if not is_apart(attack)]
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for attack in wanted:
                if attack not in alone:
                    group.create_task(_try_in_time(world, attack, ends, slots, tell))
        for attack in alone:
            world.repair()
            await _try_in_time(world, attack, ends, slots, tell)
    finally:
        await world.close()


def is_apart(attack: Attack) -> bool:
    """Whether it sees its own effect and takes nothing from others, so that it may run beside them."""
    return attack.evidence == "says" and attack not in BOUNDS


async def _try_in_time(
    world: World, attack: Attack, ends: float, slots: asyncio.Semaphore, tell: Callable[[Tried], None]
) -> None:
    async with slots:
        if time.monotonic() > ends:
            tell(Tried(attack.name, "not tried", 0))
        else:
            tell(await _try(world, attack, daemon=str(700_000_000 + time.time_ns() % 10**9)))


async def _try(world: World, attack: Attack, *, daemon: str) -> Tried:
    began = time.monotonic()
    result = await world.attack_inside(attack, daemon=daemon)
    through = world.breached(attack, result.text, daemon=daemon)
    if attack.evidence == "daemon":
        world.end_daemons(daemon)
    ms = int((time.monotonic() - began) * 1000)
    if through:
        return Tried(attack.name, "open", ms, result.text[-200:])
    ran = result.text.startswith("RAN") and result.status in ("exited", "signalled")
    return Tried(attack.name, "held" if ran else "not tried", ms)
