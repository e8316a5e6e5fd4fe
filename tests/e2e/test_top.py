"""`remit top`: what a host does now, from the host down to the tool call."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from door_kit import PLAN, SLEEP, Door, DoorWorld
from remit.cli._screen import Glyphs
from remit.cli._top_picture import HostPicture, cut, top_lines
from remit.cli._watching_host import print_picture
from remit.contract import Limits, RunStatus, RunView

HOST = {"status": "ready", "running": 1, "max_running": 100, "queued": 1, "max_queued": 1000}


def _run(run_id: str, status: RunStatus) -> RunView:
    return RunView(
        id=run_id,
        session_id=run_id,
        root_run_id=run_id,
        binding="reviewed",
        profile="reviewed",
        status=status,
        created_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        limits=Limits(),
    )


def _work(work_id: str, kind: str, label: str, *children: object) -> dict[str, object]:
    return {
        "work_id": work_id,
        "kind": kind,
        "label": label,
        "status": "running",
        "elapsed_ms": 1_200,
        "children": list(children),
    }


def test_the_picture_goes_down_to_the_call() -> None:
    """Host, node, runs, stages and tool calls each have a line; no label of a model's breaks one."""
    tool = _work("run_1.work-1.t1", "tool", "run_shell: sleep\n60\x1b[31m")
    picture = HostPicture(
        url="http://127.0.0.1:7433",
        at=datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC),
        host=HOST,
        nodes=[
            {
                "id": "local",
                "state": "ready",
                "pid": 7,
                "workspaces": ["app"],
                "calls": [{"work_id": "run_1.work-1.t1", "pids": [11, 12]}],
            }
        ],
        runs=(_run("run_1", RunStatus.WORKING), _run("run_2", RunStatus.QUEUED)),
        costs={"run_1": 0.0123, "run_2": 0.0},
        work=[
            _work("run_1", "run", "run_1", _work("run_1.work-1", "stage", "work-1", tool)),
            _work("msg_1", "event_delivery", "webhook of run_0"),
        ],
    )
    lines = [line.plain for line in top_lines(picture, Glyphs())]
    assert lines[0] == "http://127.0.0.1:7433 · ready · 1 of 100 running · 1 queued · $0.0123 so far"
    assert lines[1] == "node local · ready, pid 7 · app"
    assert lines[2] == "● run_1 working · reviewed · 5.0 s · $0.0123"
    assert lines[3] == "└─ stage work-1  1.2 s  run_1.work-1"
    assert lines[4].startswith("   └─ tool run_shell: sleep 60")
    assert "  pid 11 12  1.2 s" in lines[4]
    assert lines[5].startswith("· run_2 queued")
    assert lines[6:] == ["other work of the host", "└─ event delivery webhook of run_0  1.2 s  msg_1"]
    assert not any("\n" in line or "\x1b" in line for line in lines)
    assert [line.plain for line in cut(list(top_lines(picture, Glyphs())), most=3)][
        -1
    ] == "... and 6 lines more"


async def _top(door_url: str, secret: str, world: DoorWorld, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "remit.cli", "top", *words,
        env={**world.environment(), "REMIT_API_KEY": secret, "REMIT_HOST": door_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_pipe_gets_one_picture(tmp_path: Path) -> None:
    """Where nobody watches it prints once: the run, its stage and the tool that goes on, also as JSON."""
    world = DoorWorld(home=tmp_path, replies=(PLAN, SLEEP))
    async with world.open() as door, door.client() as http:
        run = (await http.post("/api/v1/runs", json={"binding": "reviewed", "prompt": "x"})).json()
        async with asyncio.timeout(60):
            while not any(one["kind"] == "tool" for one in (await http.get("/api/v1/work")).json()["data"]):
                await asyncio.sleep(0.05)
        code, out, err = await _top(door.base_url, door.secret, world)
        assert (code, err) == (0, "")
        assert f"{run['id']} working" in out
        assert "stage work-1" in out
        assert "tool run_shell: sleep 60" in out
        call = await call_with_processes(door)
        code, out, _ = await _top(door.base_url, door.secret, world)
        assert f"tool run_shell: sleep 60  pid {' '.join(map(str, call['pids']))}" in out
        code, out, _ = await _top(door.base_url, door.secret, world, "--once", "--json")
        said = json.loads(out)
        assert [one["id"] for one in said["runs"]] == [run["id"]]
        assert said["host"]["running"] == 1
        await http.post(f"/api/v1/runs/{run['id']}/cancel")


async def call_with_processes(door: Door) -> dict[str, Any]:
    """The one tool call that has processes, as soon as there is one whose command has begun."""
    async with door.client() as http, asyncio.timeout(60):
        while True:
            (node,) = (await http.get("/api/v1/nodes", params={"calls": "1"})).json()["data"]
            for call in node["calls"]:
                if any(_begun(pid) for pid in call["pids"]):
                    return call
            await asyncio.sleep(0.05)


def _begun(pid: int) -> bool:
    """Whether this is the call's own command, which sleeps."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:
        return False


async def test_only_the_own_tenants_processes_are_told(tmp_path: Path) -> None:
    """R78: another tenant's key sees no process of this one's, and nobody sees any who doesn't ask."""
    world = DoorWorld(home=tmp_path, replies=(PLAN, SLEEP))
    async with world.open() as door, door.client() as http:
        run = (await http.post("/api/v1/runs", json={"binding": "reviewed", "prompt": "x"})).json()
        call = await call_with_processes(door)
        assert call["work_id"].startswith(f"{run['id']}.work-1.")
        assert (await http.get("/api/v1/nodes")).json()["data"][0]["calls"] is None
        other = await door.add_key("other", tenant="other")
        async with door.client(other) as theirs:
            assert (await theirs.get("/api/v1/nodes", params={"calls": "1"})).json()["data"][0]["calls"] == []
        await http.post(f"/api/v1/runs/{run['id']}/cancel")


def test_a_picture_as_json_moves_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """R49: control characters of a label are escaped, those that plain JSON leaves as they are, too."""
    label = "run_shell: \x9b2J\x7f\x1b[31m"
    picture = HostPicture(
        url="http://127.0.0.1:7433",
        at=datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC),
        host=HOST,
        nodes=[],
        runs=(),
        costs={},
        work=[_work("run_1.work-1.t1", "tool", label)],
    )
    assert next(top_lines(picture, Glyphs())).plain.endswith("1 queued")  # no cost where nothing runs
    print_picture(picture, as_json=True)
    out = capsys.readouterr().out
    assert label in {one["label"] for one in json.loads(out)["work"]}
    assert not [sign for sign in out if sign != "\n" and not sign.isprintable()]


@pytest.mark.parametrize("words", [("--json",), ()])
async def test_what_is_missing_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Exit 2 without a host or for options that don't go together; 69 for a host that isn't there."""
    world = DoorWorld(home=tmp_path)
    code, out, err = await _top("http://127.0.0.1:9", "rk_" + "x" * 43, world, *words)
    assert (code, out) == (2 if words else 69, "")
    assert "Traceback" not in err
