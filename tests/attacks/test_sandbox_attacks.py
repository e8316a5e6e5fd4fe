"""A hostile command gets nowhere; each attack is shown to work where there is no sandbox."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator

import pytest

from remit.testing.attacks import ATTACKS, Attack, World, applies, has_control, is_apart

INSIDE = [attack for attack in ATTACKS if applies(attack)]
OUTSIDE = [attack for attack in ATTACKS if has_control(attack)]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as loop:
        yield loop


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runner: asyncio.Runner) -> Iterator[World]:
    base = tmp_path_factory.mktemp("attacks").resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(base / "home"))
        world = World(base)
        patch.setenv("PROVIDER_API_KEY", world.canary)
        world.build_files()
        runner.run(world.open())
        yield world
        runner.run(world.close())


def daemon_number() -> str:
    """How long a daemon sleeps, and by what it is found: a number that no other process has."""
    return str(700 + secrets.randbelow(10**9))


@pytest.mark.parametrize("attack", INSIDE, ids=lambda attack: attack.name)
def test_attack_fails_in_the_sandbox(attack: Attack, world: World, runner: asyncio.Runner) -> None:
    """R2, R36: no attack gets out of the sandbox, reads what isn't shown, or outlives its command."""
    world.repair()
    daemon = daemon_number()
    result = runner.run(world.attack_inside(attack, daemon=daemon))
    assert result.status in ("exited", "signalled"), result
    assert result.text.startswith("RAN"), result.text  # it was tried
    assert not world.breached(attack, result.text, daemon=daemon), result.text


def test_no_attack_works_for_a_program_that_is_talked_to(world: World, runner: asyncio.Runner) -> None:
    """R2, R36: a tool server, which is talked to for as long as it likes, gets no further than a command."""
    seen: dict[str, str] = {}

    async def attack_all() -> None:
        slots = asyncio.Semaphore(4)
        async with asyncio.TaskGroup() as group:
            for attack in INSIDE:
                if is_apart(attack):
                    group.create_task(try_one(attack, slots))
        for attack in INSIDE:
            if not is_apart(attack):
                world.repair()
                await try_one(attack, slots)

    async def try_one(attack: Attack, slots: asyncio.Semaphore) -> None:
        daemon = daemon_number()
        async with slots:
            said, result = await world.attack_by_dialogue(attack, daemon=daemon)
        ran = said.startswith("RAN") and result.status in ("exited", "signalled")
        if world.breached(attack, said, daemon=daemon) or not ran:
            seen[attack.name] = f"{result.status}: {said[-500:]}"

    runner.run(attack_all())
    assert seen == {}


@pytest.mark.parametrize("attack", OUTSIDE, ids=lambda attack: attack.name)
def test_attack_works_without_a_sandbox(attack: Attack, world: World) -> None:
    """The same script gets through where nothing stops it, so that its failure inside means something."""
    world.repair()
    daemon = daemon_number()
    said = world.attack_outside(attack, daemon=daemon)
    try:
        assert world.breached(attack, said, daemon=daemon), said
    finally:
        world.end_daemons(daemon)
        world.repair()


def test_the_attacks_are_many_and_told_apart() -> None:
    """The table holds at least 31 attacks with names of their own, most with a control."""
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names))
    assert len(INSIDE) >= 31
    assert len(OUTSIDE) * 2 >= len(INSIDE)


def test_the_sandbox_still_works_after_all_attacks(world: World, runner: asyncio.Runner) -> None:
    """What they did to their checkout stays there; an ordinary command runs as before."""
    script = Attack(name="ordinary", script="echo fine; cat {tools}/bin/tool")
    result = runner.run(world.attack_inside(script, daemon="0"))
    assert (result.exit_code, result.text) == (0, "RAN\nfine\noriginal\n")
    assert sorted(os.listdir(world.root)) == ["socket", "tracked.txt"]
