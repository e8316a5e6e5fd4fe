"""Runs whose provider answers nonsense in some field: each dialect, through the whole pipeline."""

from __future__ import annotations

import asyncio
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from git_repository import make_repository
from model_kit import need_sdk
from nonsense_kit import CASES, Mutation, mutated_body
from remit.testing import FakeProvider, Reply
from whole_kit import CALC, KEY_VARIABLE, NO_CHECKS, Ended, HastyClock, World, tool

LOOK = Reply(
    thinking="Let me look.",
    text="Looking.",
    tool_calls=(tool("read_file", relative_path="README.md"), tool("run_shell", command="echo hi")),
    chunk_count=1,
)
ANSWER = Reply(text=json.dumps({"completion": "ok", "verification": "seen"}), chunk_count=1)
RUNS = 4
"""For each dialect. Seeds differ by dialect, so that places do too."""
CLASSES = {None, "provider", "invalid_output", "budget"}


@pytest.mark.parametrize("case", CASES)
async def test_every_run_has_its_true_end(tmp_path: Path, case: str) -> None:
    """R11, R14, R31, R44, R84, R85: a field of nonsense ends a run as it must, never as a fault of ours."""
    kind, model, make = CASES[case]
    need_sdk(kind)
    dialect, chosen = make(), random.Random(case)
    home = tmp_path.resolve() / "home"
    home.mkdir(mode=0o700)
    with warnings.catch_warnings(), FakeProvider([LOOK, ANSWER], dialect=dialect) as fake:
        warnings.simplefilter("ignore")  # as users have it: the libraries warn of much of this
        key = {} if kind == "ollama" else {"api_key_env": KEY_VARIABLE}
        world = World(
            root=make_repository(tmp_path.resolve() / "calc", CALC),
            home=home,
            fake=fake,
            workspace=dict(NO_CHECKS),
            settings={
                "providers": {"fake": {"kind": kind, "base_url": fake.base_url, **key}},
                "prices": {f"fake:{model}": {"free": True}},
            },
        )
        async with world.host(delivery="patch", clock=HastyClock()) as host:
            request = world.request(
                model=f"fake:{model}",
                profile="direct",
                limits={"max_tool_rounds": 3, "max_corrections": 1},
            )

            async def run() -> Ended:
                async with asyncio.timeout(90):
                    return await Ended.of(host, await host.start(request))

            assert (await run()).ending == ("completed", None, None)
            for number in range(RUNS):
                mutation: Mutation = (chosen.randrange(41), chosen.randrange(401), chosen.randrange(97))
                _, pieces = dialect.render((LOOK, ANSWER)[number % 2], fake.requests[-1], number=1)
                body, path = mutated_body(b"".join(pieces), mutation)
                fake._replies.clear()
                # Once, and then it is well again; or for ever.
                well: list[Any] = [LOOK, *[ANSWER] * 4]
                fake.script(Reply(raw=body, repeat=number >= RUNS // 2), *well)
                ended = await run()
                ended.check_story()
                assert ended.ending[0] in ("completed", "failed"), (mutation, path, ended.ending)
                assert ended.ending[1] in CLASSES, (mutation, path, ended.ending)
