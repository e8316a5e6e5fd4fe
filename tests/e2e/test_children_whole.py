"""Child runs in whole runs: a real host, real checkouts, a provider over real HTTP, a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from remit.config import load_config
from remit.contract import RunRequest, RunStatus
from remit.host import Host
from whole_kit import (
    CALC,
    MEND,
    Ended,
    World,
    differing,
    gone_within,
    judged,
    look_closely,
    nonce,
    planned,
    shell,
    use,
    worked,
)

SPLIT = use("delegate", prompt="Mend add in calc/__init__.py. Verify with the tests.")


def delegating(world: World, **workspace: Any) -> None:
    world.workspace = {**world.workspace, **workspace, "ref": "app"}
    binding = {"workspace": "app", "delegate": True}
    world.settings = {**world.settings, "bindings": {"reviewed": binding}}


async def test_a_child_mends_and_its_parent_delivers(world: World) -> None:
    """S37: what the child's review passed goes through its parent's review and checks, and lands."""
    delegating(world)
    before = look_closely(world.root)
    world.fake.script(
        planned(),
        SPLIT,
        *(planned("Mend add."), MEND, shell("python3 -m unittest -q"), worked(), judged(output="Mended.")),
        shell("python3 -m unittest -q && cat calc/__init__.py"),
        worked(),
        judged(),
    )
    async with world.host() as host:
        run = await host.start(world.request())
        ended = await Ended.of(host, run)
        assert ended.ending == ("completed", None, None)
        assert "return a + b" in (world.root / "calc/__init__.py").read_text()
        assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
        told = json.loads(ended.results[0]["content"])
        assert (told["status"], told["applied"], told["output"]) == (
            "completed",
            ["calc/__init__.py"],
            "Mended.",
        )
        assert "return a + b" in ended.results[1]["content"]
        child = await Ended.of(host, host.open_run(told["run_id"]))
        for story in (ended, child):
            story.check_story()
        assert (child.view.parent_run_id, child.view.root_run_id) == (run.id, run.id)
        assert ended.bill.own.total_tokens is not None
        assert child.bill.total_tokens is not None
        assert ended.bill.subtree.total_tokens == ended.bill.own.total_tokens + child.bill.total_tokens
        assert ended.bill.coverage.attempts == len(world.fake.requests)
        assert ended.view.cost_usd is not None
        assert child.view.cost_usd is not None
        assert ended.view.cost_usd > child.view.cost_usd > 0
    assert not world.fake.unused
    assert list((world.data / "node/checkouts").iterdir()) == []


async def test_a_cancel_ends_the_childs_processes(world: World) -> None:
    """S44: cancelling the parent kills what its child runs; both have their terminal."""
    delegating(world, checks=[])
    word = nonce()
    before = look_closely(world.root)
    world.fake.script(planned(), SPLIT, planned(), shell(f"exec -a {word} sleep 600"))
    async with world.host() as host:
        run = await host.start(world.request())
        async with asyncio.timeout(60):
            while gone_within(word, 0):
                await asyncio.sleep(0.05)
        outcome = await run.cancel()
        assert outcome.changed
        assert gone_within(word, 0)
        assert outcome.run.status is RunStatus.CANCELLED
        runs, _ = await host.store.list_runs()
        (child,) = [stored.view for stored in runs if stored.view.parent_run_id == run.id]
        assert child.status is RunStatus.CANCELLED
        assert host.registry.active_count() == 0
    assert differing(before, look_closely(world.root)) == set()


async def test_a_child_can_be_watched_and_cancelled_by_itself(world: World) -> None:
    """A child is found by its id while it goes on; cancelled alone, its parent is told and goes on."""
    delegating(world, checks=[])
    word = nonce()
    world.fake.script(
        planned(), SPLIT, planned(), shell(f"exec -a {word} sleep 600"), MEND, worked(), judged()
    )
    async with world.host() as host:
        run = await host.start(world.request())
        async with asyncio.timeout(60):
            while gone_within(word, 0):
                await asyncio.sleep(0.05)
        runs, _ = await host.store.list_runs()
        (child,) = [stored.view.id for stored in runs if stored.view.parent_run_id == run.id]
        outcome = await host.open_run(child).cancel(by="operator")
        assert (outcome.changed, outcome.run.status) == (True, RunStatus.CANCELLED)
        ended = await Ended.of(host, run)
        assert ended.ending == ("completed", None, None)
        assert ended.results[0]["status"] == "cancelled"


async def test_by_a_scripted_model(world: World, tmp_path: Path) -> None:
    """A script is played from its start for each run: `when` tells parent and child apart."""
    edit = {"relative_path": "calc/__init__.py", "old": "a - b", "new": "a + b"}
    plan = {"plan": "Mend it.", "verification": "Run the tests."}
    work = {"completion": "Mended.", "verification": "Tests ran."}
    passed = {"decision": "pass", "output": "It is mended.", "summary": "Fine."}
    mine = {"contains": "Make it pass"}
    delegate = {"name": "delegate", "arguments": {"prompt": "Mend add."}}
    replies: list[dict[str, Any]] = [
        {"stage": "work", "when": mine, "tool_calls": [delegate]},
        {"stage": "work", "when": mine, "json": work},
        {"stage": "plan", "json": plan},
        {"stage": "work", "tool_calls": [{"name": "edit_file", "arguments": edit}]},
        {"stage": "work", "json": work},
        {"stage": "review", "json": passed},
    ]
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump({"replies": replies}))
    settings = {
        "providers": {"play": {"kind": "scripted", "script": str(script)}},
        "bindings": {"reviewed": {"workspace": "app", "delegate": True}},
        "nodes": {"local": {"workspaces": [{"ref": "app", "root": str(world.root), "shell": True}]}},
    }
    config = load_config(
        environment=world.all_variables(), folder=world.home, repository=world.root, overrides=settings
    ).as_owner()
    async with Host(config, door_delivery="apply") as host:
        request = {"prompt": "Make it pass", "model": "play:any", "workspace": {"ref": "app"}}
        run = await host.start(RunRequest.model_validate(request))
        ended = await Ended.of(host, run)
        assert ended.ending == ("completed", None, None)
        assert ended.bill.coverage.attempts == 4 + 4
    assert "a + b" in (world.root / "calc/__init__.py").read_text()
    assert CALC["calc/__init__.py"] != (world.root / "calc/__init__.py").read_text()
