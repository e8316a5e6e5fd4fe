"""Whose run goes on next, and what a caller is told of its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from door_kit import PLAN, REVIEW, SLEEP, WORK, Door, DoorWorld

BODY = {"binding": "reviewed", "prompt": "Mend it."}
RUNS = "/api/v1/runs"


def narrow(home: Path, **host: int) -> DoorWorld:
    """A host with one place, and runs that keep theirs until they are stopped."""
    return DoorWorld(home=home, replies=(PLAN, SLEEP, WORK, REVIEW), host_table={"max_running": 1, **host})


async def create(client: httpx2.AsyncClient, count: int = 1) -> list[dict[str, Any]]:
    answers = [await client.post(RUNS, json=BODY) for _ in range(count)]
    assert {answer.status_code for answer in answers} == {201}
    return [answer.json() for answer in answers]


async def cancel_and_see_next(door: Door, client: httpx2.AsyncClient, run_id: str, after: str) -> None:
    """Stop the run that has the place; then `after` has it."""
    answer = await client.post(f"{RUNS}/{run_id}/cancel", params={"wait_ms": 30_000})
    assert answer.status_code == 200
    async with asyncio.timeout(30):
        while (await door.host.store.find_run(after, tenant="other")) is None:
            await asyncio.sleep(0.01)
        await door.host.store.wait_for_events(after, after=1, tenant="other")


async def test_runs_of_one_key_hold_up_no_other(tmp_path: Path) -> None:
    """Fair share: whoever comes with one run is next, however many wait; no 429 at the 11th."""
    async with narrow(tmp_path).open() as door:
        secret = await door.add_key("modest", tenant="other")
        async with door.client() as greedy, door.client(secret) as modest:
            many = await create(greedy, 25)
            assert [run["queue_position"] for run in many] == [None, *range(1, 25)]
            (one,) = await create(modest)
            assert one["queue_position"] == 1
            listed = (await greedy.get(RUNS, params={"limit": 500})).json()["data"]
            places = {run["id"]: run["queue_position"] for run in listed}
            assert [places[run["id"]] for run in many] == [None, *range(1, 25)]
            await cancel_and_see_next(door, greedy, many[0]["id"], one["id"])
            assert (await modest.get(f"{RUNS}/{one['id']}")).json()["queue_position"] is None
            assert (await greedy.get(f"{RUNS}/{many[1]['id']}")).json()["queue_position"] == 1
            page = await modest.get(RUNS)
            assert [run["id"] for run in page.json()["data"]] == [one["id"]]


async def test_key_has_a_bound_of_waiting_runs(tmp_path: Path) -> None:
    """A key's own quota is 429 with `Retry-After`, in each dialect; another key goes on asking."""
    async with narrow(tmp_path).open() as door:
        secret = await door.add_key("bounded", max_queued=1)
        async with door.client(secret) as bounded, door.client() as other:
            first, second = await create(bounded, 2)
            assert (first["queue_position"], second["queue_position"]) == (None, 1)
            refused = await bounded.post(RUNS, json=BODY)
            assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
            assert refused.json()["retryable"] is True
            assert int(refused.headers["retry-after"]) > 0
            assert "1 runs of this key go on and 1 wait" in refused.json()["detail"]
            preview = await bounded.post(RUNS, json=BODY, params={"dry_run": "1"})
            assert preview.json()["would"] == "be_deferred"
            chat = {"model": "reviewed", "messages": [{"role": "user", "content": "Mend it."}]}
            told = await bounded.post("/v1/chat/completions", json=chat)
            assert (told.status_code, "retry-after" in told.headers) == (429, True)
            told = await bounded.post("/v1/messages", json={**chat, "max_tokens": 100})
            assert (told.status_code, told.json()["error"]["type"]) == (429, "rate_limit_error")
            await create(other, 1)


async def test_runs_that_wait_for_their_session_leave_places_to_others(tmp_path: Path) -> None:
    """A session's next run waits for its turn without a place of its own."""
    world = narrow(tmp_path)
    world.host_table = {"max_running": 2}
    async with world.open() as door, door.client() as client:
        body = {**BODY, "session_id": "talk", "on_busy": "enqueue"}
        turns = [(await client.post(RUNS, json=body)).json() for _ in range(5)]
        assert [run["queue_position"] for run in turns] == [None, 1, 2, 3, 4]
        (alone,) = await create(client)
        assert alone["queue_position"] is None
        host = (await client.get("/api/v1/host")).json()
        assert (host["running"], host["queued"]) == (2, 4)
