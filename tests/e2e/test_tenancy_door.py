"""Somebody else's id answers exactly as one that doesn't exist: made from the table of calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import PLAN, REVIEW, SLEEP, WORK, DoorWorld
from remit.api import OPERATIONS

NAMED = [operation for operation in OPERATIONS if operation.names is not None]
BODIES: dict[str, Any] = {"acknowledge_run": {"accepted": True}, "input_run": {"text": "Mind the tests."}}
"""What a call needs to be more than a refusal of its body."""


class Two:
    """Two tenants of one host; the first has a run that goes on, with a tool at work."""

    def __init__(
        self, owner: httpx2.AsyncClient, stranger: httpx2.AsyncClient, names: dict[str, str]
    ) -> None:
        self.owner = owner
        self.stranger = stranger
        self.names = names


@pytest.fixture
async def two(tmp_path: Path) -> AsyncGenerator[Two]:
    world = DoorWorld(home=tmp_path, replies=(PLAN, SLEEP, WORK, REVIEW))
    async with world.open() as door:
        secret = await door.add_key("stranger", tenant="other")
        async with door.client() as owner, door.client(secret) as stranger:
            run = (await owner.post("/api/v1/runs", json={"binding": "reviewed", "prompt": "x"})).json()
            tool = await _tool(owner, run["id"])
            yield Two(owner, stranger, {"run": run["id"], "session": run["session_id"], "work": tool})


async def _tool(client: httpx2.AsyncClient, run_id: str) -> str:
    for _ in range(500):
        for entry in (await client.get(f"/api/v1/runs/{run_id}/work")).json()["data"]:
            if entry["kind"] == "tool":
                return entry["work_id"]
        await asyncio.sleep(0.02)
    pytest.fail("no tool call was ever seen")


def test_every_call_with_an_id_says_what_it_names() -> None:
    """R78: a call whose path has an id can't be added without being tried here."""
    for operation in OPERATIONS:
        assert ("{id}" in operation.path) == (operation.names is not None), operation.id


async def test_strangers_learn_nothing_of_an_id(two: Two) -> None:
    """R78: status, headers and body are those of an id that doesn't exist, for every call with an id."""
    for operation in NAMED:
        assert operation.names is not None
        real = two.names[operation.names]
        answers = []
        for name in (real, "x" * len(real)):
            path = operation.path.replace("{id}", name).replace("{name:path}", "patch")
            answer = await two.stranger.request(operation.method, path, json=BODIES.get(operation.id))
            answers.append(_shown(answer, name))
        assert answers[0] == answers[1], operation.id
        assert answers[0][0] == 404, operation.id


def _shown(answer: httpx2.Response, name: str) -> tuple[int, dict[str, str], str]:
    headers = {key: value for key, value in answer.headers.items() if key not in {"date", "x-request-id"}}
    text = re.sub(r"req_[0-9A-Z]+", "req", answer.text).replace(name, "ID")
    return answer.status_code, headers, text


async def test_nothing_of_a_stranger_was_changed(two: Two) -> None:
    """R78: after a stranger tried everything the run goes on, and its owner can still stop it."""
    for operation in NAMED:
        if operation.method != "GET" and operation.names is not None:
            path = operation.path.replace("{id}", two.names[operation.names])
            await two.stranger.request(operation.method, path, json=BODIES.get(operation.id))
    run = (await two.owner.get(f"/api/v1/runs/{two.names['run']}")).json()
    assert (run["status"], run["cancel_requested"]) == ("working", False)
    cancelled = await two.owner.post(f"/api/v1/runs/{two.names['run']}/cancel")
    assert cancelled.json()["changed"] is True


async def test_lists_and_totals_show_what_is_ones_own(two: Two) -> None:
    """R78: a stranger's lists are empty, its totals nothing, its cursors unknown."""
    for path in ("runs", "sessions", "work"):
        assert (await two.owner.get(f"/api/v1/{path}")).json()["data"]
        assert (await two.stranger.get(f"/api/v1/{path}")).json()["data"] == []
    report = (await two.stranger.get("/api/v1/usage")).json()
    assert (report["data"], report["total"]["runs"]) == ([], 0)
    keys = [key["name"] for key in (await two.stranger.get("/api/v1/keys")).json()["data"]]
    assert keys == ["stranger"]
    for path in ("runs", "sessions"):
        ours = await two.stranger.get(f"/api/v1/{path}", params={"cursor": two.names["run"]})
        none = await two.stranger.get(f"/api/v1/{path}", params={"cursor": "nobody"})
        assert (ours.status_code, none.status_code) == (422, 422)
        assert ours.json()["detail"] == none.json()["detail"]


async def test_same_own_id_is_two_runs(two: Two) -> None:
    """R63, R78: an id is a tenant's own; one's cancel, tombstone and session aren't the other's."""
    run_id = two.names["run"]
    body = {"binding": "reviewed", "prompt": "x", "id": run_id}
    theirs = await two.stranger.post("/api/v1/runs", json=body)
    assert theirs.status_code == 201
    await _tool(two.stranger, run_id)
    work = (await two.stranger.get("/api/v1/work")).json()["data"]
    assert {entry["work_id"].partition(".")[0] for entry in work} == {run_id}
    cancelled = (await two.stranger.post(f"/api/v1/runs/{run_id}/cancel")).json()
    assert cancelled["run"]["status"] == "cancelled"
    assert (await two.owner.get(f"/api/v1/runs/{run_id}")).json()["status"] == "working"
    await two.stranger.post("/api/v1/runs/later/cancel", json={"tombstone": True})
    mine = await two.owner.post("/api/v1/runs", json={**body, "id": "later", "session_id": "later"})
    assert mine.json()["status"] == "queued"
