"""Many runs at once: on one data folder, on one repository, in one host."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from git_repository import make_repository
from remit.testing import FakeProvider, RecordedRequest, Reply, route_by_stage
from whole_kit import (
    CALC,
    MEND,
    NO_CHECKS,
    Ended,
    World,
    differing,
    judged,
    look_closely,
    planned,
    shell,
    use,
    worked,
)


def worlds(base: Path, fake: FakeProvider, count: int) -> list[World]:
    """Users of one home and data folder, each with a repository of its own."""
    (base / "home").mkdir(mode=0o700, exist_ok=True)
    return [
        World(
            root=make_repository(base / f"calc{number}", CALC),
            home=base / "home",
            fake=fake,
            workspace=dict(NO_CHECKS),
        )
        for number in range(count)
    ]


def start_all(users: list[World]) -> list[subprocess.Popen[str]]:
    """Start `remit run` for each, each with settings of its own."""
    processes: list[subprocess.Popen[str]] = []
    for number, user in enumerate(users):
        settings = user.write_settings()
        own = settings.rename(settings.with_name(f"remit-{number}.toml"))
        processes.append(user.start("run", "fix it", "--json", "--config", str(own)))
    return processes


def hold(database: Path, *, seconds: float, times: int) -> threading.Thread:
    """Hold the database's write lock from outside, some times in a row, once it is there."""

    def holding() -> None:
        until = time.monotonic() + 30
        while not database.exists() and time.monotonic() < until:
            time.sleep(0.01)
        with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
            for _ in range(times):
                connection.execute("BEGIN IMMEDIATE")
                time.sleep(seconds)
                connection.execute("ROLLBACK")
                time.sleep(0.3)

    thread = threading.Thread(target=holding)
    thread.start()
    return thread


@pytest.mark.slow
def test_eight_runs_on_one_data_folder(world: World) -> None:
    """R59: eight programs at once, while somebody holds the database twice for 3 s: all complete."""
    users = worlds(world.root.parent, world.fake, 8)
    world.fake.script(
        *(replace(reply, repeat=True) for reply in route_by_stage(plan=[planned()], review=[judged()])),
        replace(MEND, stage="work", repeat=True, when=first_of_work),
        replace(worked(), stage="work", repeat=True),
    )
    before = [look_closely(user.root) for user in users]
    processes = start_all(users)
    holder = hold(world.data / "remit.db", seconds=3, times=2)
    outcomes = [process.communicate(timeout=110) for process in processes]
    holder.join()
    for process, (output, errors) in zip(processes, outcomes, strict=True):
        assert process.returncode == 0, errors
        assert json.loads(output)["status"] == "completed"
    for user, seen in zip(users, before, strict=True):
        assert differing(seen, look_closely(user.root)) == {"calc/__init__.py"}
    code, listed, _ = world.command("ps", "--all", "--json")
    assert code == 0
    runs = [json.loads(line) for line in listed.splitlines()]
    assert len({run["id"] for run in runs}) == 8
    assert {run["status"] for run in runs} == {"completed"}


def first_of_work(request: RecordedRequest) -> bool:
    """Whether no tool has been used in this conversation yet."""
    return all(message["role"] != "tool" for message in request.json["messages"])


async def test_four_runs_on_one_repository(world: World) -> None:
    """R38: each has a checkout of its own, from one base; none sees a byte of another, in files or git."""
    world.workspace = dict(NO_CHECKS)
    script = (
        "git log --oneline | wc -l; cat note.txt 2>/dev/null; echo {word} > note.txt; git add -A;"
        " sleep 1; git -c user.name=a -c user.email=a@b commit -qm {word};"
        " cat note.txt; git log --format=%s | head -1"
    )
    words = [f"word{number}x" for number in range(4)]
    world.fake.script(
        *(replace(reply, repeat=True) for reply in route_by_stage(plan=[planned()], review=[judged()])),
        *(
            replace(
                shell(script.format(word=word)),
                stage="work",
                when=lambda r, w=word: w in r.text and first_of_work(r),
            )
            for word in words
        ),
        replace(worked(), stage="work", repeat=True),
    )
    before = look_closely(world.root)
    async with world.host(delivery="patch") as host:
        runs = [await host.start(world.request(prompt=f"write {word}")) for word in words]
        ended = [await Ended.of(host, run) for run in runs]
        patches = [await host.store.read_artifact(run.id, "patch") for run in runs]
        assert host.node.service.opened_count == host.node.service.cleaned_up_count == 4
    bases = {one.view.workspace.base for one in ended if one.view.workspace}
    assert len(bases) == 1
    for word, one, patch in zip(words, ended, patches, strict=True):
        assert one.ending == ("completed", None, None), one.results
        lines = one.results[0]["content"].split()
        assert lines[1:3] == [word, word]
        assert patch is not None
        others = [other for other in words if other != word]
        assert f"+{word}" in patch.text
        assert not any(other in patch.text for other in others)
        for request in world.fake.requests:
            if f"write {word}" in request.text:
                assert not any(other in request.text for other in others), "S36"
    assert look_closely(world.root) == before
    numbers = {re.split(r"\s", one.results[0]["content"])[0] for one in ended}
    assert len(numbers) == 1


async def test_three_runs_deliver_to_one_tree(world: World) -> None:
    """R38: of two runs that change one file the second is a conflict, whole; one beside them lands."""
    world.workspace = dict(NO_CHECKS)
    edits = {
        "plus": use("edit_file", relative_path="calc/__init__.py", old="a - b", new="a + b"),
        "sum": use("edit_file", relative_path="calc/__init__.py", old="a - b", new="sum((a, b))"),
        "readme": use("write_file", relative_path="README.md", content="# Calc\n"),
    }
    world.fake.script(
        *(replace(reply, repeat=True) for reply in route_by_stage(plan=[planned()], review=[judged()])),
        *(
            replace(
                edit, stage="work", when=lambda r, word=word: f"use {word}" in r.text and first_of_work(r)
            )
            for word, edit in edits.items()
        ),
        replace(worked(), stage="work", repeat=True),
    )
    async with world.host() as host:
        runs = [
            await host.start(world.request(prompt=f"use {word}", acknowledge="required")) for word in edits
        ]
        for run in runs:
            async for event in run.events():
                if event.type == "run.finalizing":
                    break
        ended: list[Ended] = []
        for run in runs:
            async with asyncio.timeout(30):
                while not run.acknowledge():
                    await asyncio.sleep(0.01)
            ended.append(await Ended.of(host, run))
    assert [one.ending[2] for one in ended] == [None, "delivery_conflict", None]
    assert (world.root / "calc/__init__.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert (world.root / "README.md").read_text() == "# Calc\n"


async def test_calls_with_one_id_in_two_runs(world: World) -> None:
    """S45, S47, S50, S51, S81: one call id in two runs at once; the blocked one delays nobody."""
    world.workspace = dict(NO_CHECKS)
    call = {"id": "call_same"}
    blocked = Reply(tool_calls=tuple(replace(c, **call) for c in shell("sleep 600").tool_calls))
    quick = Reply(tool_calls=tuple(replace(c, **call) for c in shell("echo quick").tool_calls))
    world.fake.script(
        *(replace(reply, repeat=True) for reply in route_by_stage(plan=[planned()], review=[judged()])),
        replace(blocked, stage="work", when=lambda r: "slowly" in r.text),
        replace(quick, stage="work", when=lambda r: "slowly" not in r.text and first_of_work(r)),
        replace(worked(), stage="work", repeat=True),
    )
    async with world.host(delivery="patch") as host:
        slow = await host.start(world.request(prompt="work slowly"))
        async for event in slow.events():
            if event.type == "tool.started":
                break
        fast = await Ended.of(host, await host.start(world.request(prompt="work")))
        assert fast.ending == ("completed", None, None)
        assert "quick" in fast.results[0]["content"]
        assert host.link.pending_count(fast.view.id) == 0
        assert host.link.pending_count(slow.id) == 1
        outcome = await slow.cancel()
        assert outcome.changed
        assert host.link.pending_count() == 0


@pytest.mark.slow
async def test_forty_runs_in_one_host(world: World) -> None:
    """S75: one host carries any number of runs; each has its own end, and nothing is left of any."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(
        *(replace(reply, repeat=True) for reply in route_by_stage(plan=[planned()], review=[judged()])),
        replace(shell("true"), stage="work", repeat=True, when=first_of_work),
        replace(worked(), stage="work", repeat=True),
    )
    async with world.host(delivery="patch") as host:
        runs = [await host.start(world.request()) for _ in range(40)]
        async with asyncio.timeout(100):
            views = [await run.ended() for run in runs]
        assert {view.status.value for view in views} == {"completed"}
        assert host.link.pending_count() == 0
        assert host.node.service.opened_count == host.node.service.cleaned_up_count == 40
    assert len({view.id for view in views}) == 40
