"""Runs over the native API: real HTTP on loopback, a real host, a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from door_kit import DIRECT, LOOK, PLAN, REVIEW, REVIEWED, SLEEP, WORK, WRITE, DoorWorld, slowly

BODY = {"binding": "reviewed", "prompt": "Mend it."}


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    return DoorWorld(home=tmp_path)


async def test_run_is_created_read_and_listed(world: DoorWorld) -> None:
    """A run starts with 201, ends completed, and reads the same from every call."""
    world.replies = (PLAN, WRITE, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        created = await client.post("/api/v1/runs", params={"wait_ms": 30_000}, json=BODY)
        assert created.status_code == 201, created.text
        run = created.json()
        assert (run["status"], run["output"]) == ("completed", "It is mended.")
        assert created.headers["location"] == f"/api/v1/runs/{run['id']}"
        assert (await client.get(f"/api/v1/runs/{run['id']}")).json() == run
        listed = (await client.get("/api/v1/runs", params={"status": "completed,failed"})).json()
        assert listed == {"next_cursor": None, "data": [run]}
        assert (await client.get("/api/v1/runs", params={"status": "queued"})).json()["data"] == []
        patch = await client.get(f"/api/v1/runs/{run['id']}/patch")
        assert patch.headers["content-type"].startswith("text/x-diff")
        assert "+new" in patch.text
        assert run["delivery"]["mode"] == "patch"
        assert not (world.root / "new.txt").exists()
        transcript = (await client.get(f"/api/v1/runs/{run['id']}/transcript", params={"limit": 2})).json()
        assert len(transcript["data"]) == 2
        assert transcript["next_cursor"] == "2"
        names = (await client.get(f"/api/v1/runs/{run['id']}/artifacts")).json()["data"]
        assert {"name": "patch"} in names
        usage = (await client.get(f"/api/v1/runs/{run['id']}/usage")).json()
        assert len(usage["data"]) == 4
        assert usage["usage"] == run["usage"]
        report = (await client.get("/api/v1/usage", params={"group_by": "key"})).json()
        assert report["total"]["total_tokens"] == run["usage"]["total_tokens"]
        assert report["data"][0]["group"].startswith("key_")
        by_pool = (await client.get("/api/v1/usage", params={"group_by": "pool"})).json()
        assert [(line["group"], line["runs"]) for line in by_pool["data"]] == [("default", 1)]
        assert by_pool["total"] == report["total"]
        session = (await client.get(f"/api/v1/sessions/{run['session_id']}")).json()
        assert (session["runs"], session["active_runs"]) == (1, 0)
        assert (await client.get(f"/api/v1/runs/{run['id']}/history")).json()["data"] == []


async def test_same_request_gives_the_same_run(world: DoorWorld) -> None:
    """R63: twenty at once with one key make one run; another body is refused; own ids do the same."""
    world.replies = DIRECT
    body = {"binding": "direct", "prompt": "Mend it."}
    async with world.open() as door, door.client() as client:
        headers = {"Idempotency-Key": "k-1"}
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(client.post("/api/v1/runs", json=body, headers=headers)) for _ in range(20)
            ]
        answers = [task.result() for task in asked]
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        other = await client.post("/api/v1/runs", json={**body, "prompt": "Other."}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
        own = {**body, "id": "mine"}
        assert (await client.post("/api/v1/runs", json=own)).status_code == 201
        assert (await client.post("/api/v1/runs", json=own)).status_code == 200
        assert (await client.post("/api/v1/runs", json={**own, "prompt": "No."})).status_code == 409
        stranger = await door.add_key("stranger", tenant="other")
        async with door.client(stranger) as theirs:
            answer = await theirs.post("/api/v1/runs", json=own, headers=headers, params={"wait_ms": 30_000})
            assert answer.status_code == 201
            assert answer.json()["status"] == "completed"


async def test_same_request_is_known_after_a_restart(world: DoorWorld) -> None:
    """R63: the key stands for its run in the next host, too."""
    world.replies = DIRECT
    body, headers = {"binding": "direct", "prompt": "Mend it."}, {"Idempotency-Key": "k-1"}
    async with world.open() as door, door.client() as client:
        first = await client.post("/api/v1/runs", json=body, headers=headers, params={"wait_ms": 30_000})
        secret = door.secret
    async with world.open(key_name="later") as door, door.client(secret) as client:
        again = await client.post("/api/v1/runs", json=body, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())


async def test_repetition_is_answered_as_the_first_was_whatever_stands_against_it_now(
    world: DoorWorld,
) -> None:
    """R63: a webhook that this host can't send, or a binding that is gone, takes nobody's run from him."""
    world.replies = DIRECT
    body, headers = {"binding": "direct", "prompt": "Mend it."}, {"Idempotency-Key": "k-1"}
    told = {**body, "webhook": "https://example.org/hook"}
    wait = {"wait_ms": 30_000}
    async with world.open() as door, door.client() as client:
        fresh = await client.post("/api/v1/runs", json=told, headers=headers)
        assert (fresh.status_code, fresh.json()["param"]) == (422, "webhook")
        first = await client.post("/api/v1/runs", json=body, headers=headers, params=wait)
        again = await client.post("/api/v1/runs", json=told, headers=headers, params=wait)
        assert (again.status_code, again.json()) == (200, first.json())
        other = await client.post("/api/v1/runs", json={**told, "prompt": "Other."}, headers=headers)
        assert (other.status_code, other.json()["param"]) == (422, "webhook")
        secret = door.secret
    world.bindings = {"other": {"workspace": "app", "profile": "direct", "require_evidence": False}}
    async with world.open(key_name="later") as door, door.client(secret) as client:
        again = await client.post("/api/v1/runs", json=body, headers=headers)
        assert (again.status_code, again.json()) == (200, first.json())
        bound = await door.add_key("bound", bindings=("other",))
        async with door.client(bound) as theirs:
            refused = await theirs.post("/api/v1/runs", json=body, headers=headers)
        assert (refused.status_code, refused.json()["param"]) == (404, "binding")


async def test_retried_request_joins_its_own_busy_session(world: DoorWorld) -> None:
    """R63: a retry isn't told that its session is busy with the very run it asked for."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        body, headers = {**BODY, "session_id": "thread"}, {"Idempotency-Key": "k"}
        first = await client.post("/api/v1/runs", json=body, headers=headers)
        again = await client.post("/api/v1/runs", json=body, headers=headers)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["id"] == again.json()["id"]
        busy = await client.post("/api/v1/runs", json={**body, "prompt": "Other."})
        assert (busy.status_code, busy.json()["code"], busy.json()["retryable"]) == (
            409,
            "session_busy",
            True,
        )
        await client.post(f"/api/v1/runs/{first.json()['id']}/cancel")


async def test_wait_that_runs_out_answers_202(world: DoorWorld) -> None:
    """A run that goes on when `wait_ms` has run out is answered with 202, and goes on."""
    world.replies = (PLAN, LOOK, slowly(WORK, 700), REVIEW)
    async with world.open() as door, door.client() as client:
        created = await client.post("/api/v1/runs", params={"wait_ms": 50}, json=BODY)
        assert created.status_code == 202
        assert created.json()["terminal"] is None
        again = await client.post("/api/v1/runs", json={**BODY, "id": created.json()["id"]})
        assert again.status_code == 200
        events = await client.get(f"/api/v1/runs/{created.json()['id']}/events")
        assert "run.completed" in events.text


async def test_dry_run_stores_nothing(world: DoorWorld) -> None:
    """A dry run says what would be, and leaves no trace."""
    async with world.open() as door, door.client() as client:
        answer = await client.post("/api/v1/runs", params={"dry_run": "1"}, json=BODY)
        assert answer.status_code == 200, answer.text
        said = answer.json()
        assert (said["would"], said["models"]["plan"], said["delivery"]) == ("start", ["demo:m"], "patch")
        assert said["run"]["binding"] == "reviewed"
        assert (await client.get("/api/v1/runs")).json()["data"] == []


async def test_cancel_answers_with_the_receipt(world: DoorWorld) -> None:
    """R1, R5: a cancel answers when all has ended, naming the tool; a second one changes nothing."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, run_id)
        answer = await client.post(f"/api/v1/runs/{run_id}/cancel", json={"reason": "enough"})
        assert answer.status_code == 200
        told = answer.json()
        assert told["changed"] is True
        assert told["run"]["status"] == "cancelled"
        assert told["run"]["terminal"]["code"] == "caller"
        assert told["receipt"]["complete"] is True
        assert told["receipt"]["reason"] == "enough"
        assert {"tool"} <= {item["kind"] for item in told["receipt"]["items"]}
        again = (await client.post(f"/api/v1/runs/{run_id}/cancel")).json()
        assert again == {**told, "changed": False}


async def test_cancel_of_unknown_ids(world: DoorWorld) -> None:
    """An unknown id is 404; with a tombstone it is dead for ever, and a start with it answers cancelled."""
    world.replies = DIRECT
    async with world.open() as door, door.client() as client:
        unknown = await client.post("/api/v1/runs/nobody/cancel")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
        buried = await client.post("/api/v1/runs/nobody/cancel", json={"tombstone": True, "reason": "no"})
        assert buried.status_code == 200
        assert buried.json()["run"]["status"] == "cancelled"
        started = await client.post("/api/v1/runs", json={"binding": "direct", "prompt": "x", "id": "nobody"})
        assert started.json()["status"] == "cancelled"
        assert started.json()["usage"]["total_tokens"] == 0


async def test_live_work_is_shown_nested_and_stopped(world: DoorWorld) -> None:
    """Live work reaches down to the tool; stopping the tool is that call's result, and the run goes on."""
    world.replies = (PLAN, SLEEP, LOOK, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        tool = await wait_for_tool(client, run_id)
        page = (await client.get(f"/api/v1/runs/{run_id}/work", params={"limit": 1})).json()
        assert [entry["work_id"] for entry in page["data"]] == [run_id]
        assert page["next_cursor"] == run_id
        for place in (f"/api/v1/runs/{run_id}/work", "/api/v1/work"):
            for asked in (0, -7):
                few = await client.get(place, params={"limit": asked})
                assert len(few.json()["data"]) == 1, "clamped, not refused"
            assert (await client.get(place, params={"limit": 10_000})).status_code == 200
        rest = (await client.get(f"/api/v1/runs/{run_id}/work", params={"after": run_id})).json()
        (seen,) = [entry for entry in rest["data"] if entry["work_id"] == tool["work_id"]]
        assert (seen["stage"], seen["status"]) == ("receipt_wait", "running")
        assert seen["elapsed_ms"] >= 0
        assert [(entry["stage"], entry["elapsed_ms"]) for entry in page["data"]] == [(None, None)]
        tree = (await client.get(f"/api/v1/runs/{run_id}/work", params={"tree": "1"})).json()["data"]
        assert [node["work_id"] for node in tree] == [run_id]
        assert "tool" in json.dumps(tree)
        everything = (await client.get("/api/v1/work")).json()["data"]
        assert tool["work_id"] in {entry["work_id"] for entry in everything}
        stopped = await client.post(f"/api/v1/work/{tool['work_id']}/cancel")
        assert (stopped.status_code, stopped.json()["changed"]) == (200, True)
        events = await client.get(f"/api/v1/runs/{run_id}/events", timeout=30)
        assert '"status":"cancelled"' in events.text
        ended = (await client.get(f"/api/v1/runs/{run_id}")).json()
        assert ended["terminal"]["kind"] == "completed", ended["terminal"]
        assert (await client.get(f"/api/v1/runs/{run_id}/work")).json()["data"] == []


async def test_stopping_an_attempt_has_it_asked_again_once(world: DoorWorld) -> None:
    """An attempt that is stopped by hand is retried; the second time its run fails, class `provider`."""
    world.replies = ({"stage": "work", "text": "never", "delay_ms": 600_000},) * 2
    world.bindings = {"answer": {"profile": "answer"}}
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json={"binding": "answer", "prompt": "x"})).json()["id"]
        stopped: list[str] = []
        async with asyncio.timeout(60):
            while len(stopped) < 2:
                work = (await client.get(f"/api/v1/runs/{run_id}/work")).json()["data"]
                for one in [entry["work_id"] for entry in work if entry["kind"] == "model_turn"]:
                    if one not in stopped:
                        answer = await client.post(f"/api/v1/work/{one}/cancel")
                        stopped += [one] if answer.status_code == 200 else []
                await asyncio.sleep(0.01)
        events = await client.get(f"/api/v1/runs/{run_id}/events", timeout=60)
        assert "run.failed" in events.text
        ended = (await client.get(f"/api/v1/runs/{run_id}")).json()
        assert (ended["terminal"]["class"], ended["terminal"]["code"]) == ("provider", "unavailable")
        gone = await client.post(f"/api/v1/work/{stopped[0]}/cancel")
        assert (gone.status_code, gone.json()["code"]) == (404, "not_found")


async def test_stopping_a_stage_ends_the_run(world: DoorWorld) -> None:
    """A stage that is stopped ends its run: cancelled, by an operator."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, run_id)
        await client.post(f"/api/v1/work/{run_id}.work-1/cancel")
        events = await client.get(f"/api/v1/runs/{run_id}/events")
        assert "run.cancelled" in events.text
        terminal = (await client.get(f"/api/v1/runs/{run_id}")).json()["terminal"]
        assert (terminal["class"], terminal["code"]) == ("cancelled", "operator")


async def test_acknowledgement_decides_on_the_result(world: DoorWorld) -> None:
    """A run that asked for it waits for the caller's yes; a second answer changes nothing."""
    world.replies = (PLAN, WRITE, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        body = {**BODY, "acknowledge": "required"}
        run_id = (await client.post("/api/v1/runs", json=body)).json()["id"]
        for _ in range(500):
            answer = await client.post(f"/api/v1/runs/{run_id}/acknowledge", json={"accepted": True})
            if answer.json()["changed"]:
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("it never asked")
        events = await client.get(f"/api/v1/runs/{run_id}/events")
        assert "run.completed" in events.text
        again = await client.post(f"/api/v1/runs/{run_id}/acknowledge", json={"accepted": False})
        assert again.json() == {
            "changed": False,
            "run": {
                key: value
                for key, value in (await client.get(f"/api/v1/runs/{run_id}")).json().items()
                if key in {"id", "status", "terminal"}
            },
        }


async def test_what_the_caller_adds_is_read_before_the_next_round(world: DoorWorld) -> None:
    """A message to a run that goes on reaches its model, stands in its transcript, and isn't taken later."""
    world.replies = (
        slowly(PLAN, 600),
        {**LOOK, "when": {"contains": "Mind the tabs."}},
        WORK,
        {**REVIEW, "when": {"contains": "Mind the tabs."}},
    )
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        told = await client.post(f"/api/v1/runs/{run_id}/input", json={"text": "Mind the tabs."})
        assert (told.status_code, told.json()["changed"]) == (200, True)
        events = await client.get(f"/api/v1/runs/{run_id}/events")
        assert "run.completed" in events.text, "the script only goes on where its model was told"
        transcript = await client.get(f"/api/v1/runs/{run_id}/transcript", params={"limit": 500})
        assert "Mind the tabs." in transcript.text
        late = await client.post(f"/api/v1/runs/{run_id}/input", json={"text": "Too late."})
        assert (late.status_code, late.json()["code"]) == (409, "precondition_failed")
        blank = await client.post(f"/api/v1/runs/{run_id}/input", json={"text": " "})
        assert (blank.status_code, blank.json()["param"]) == (422, "text")


async def test_configuration_is_shown_without_secrets(world: DoorWorld) -> None:
    """Bindings, pools, workspaces, nodes, keys and host are there; no path, no key's hash is."""
    world.replies = REVIEWED
    async with world.open() as door, door.client() as client:
        shown = ""
        for name in ("bindings", "pools", "workspaces", "nodes", "keys", "host", "sessions", "work"):
            answer = await client.get(f"/api/v1/{name}")
            assert answer.status_code == 200, name
            shown += answer.text
        assert str(world.home) not in shown
        assert door.secret not in shown
        assert "hash" not in shown
        assert (await client.get("/api/v1/host")).json()["status"] == "ready"
        metrics = (await client.get("/metrics")).text
        assert 'remit_http_requests_total{operation="list_bindings",status="200"} 1' in metrics
        ready = await client.get("/readyz", headers={"Authorization": ""})
        assert ready.json() == {"status": "ready"}


async def wait_for_tool(client: object, run_id: str) -> dict[str, object]:
    """The live tool call of a run, once there is one."""
    for _ in range(500):
        work = await client.get(f"/api/v1/runs/{run_id}/work")  # type: ignore[attr-defined] - any HTTP client
        for entry in work.json()["data"]:
            if entry["kind"] == "tool":
                return entry
        await asyncio.sleep(0.02)
    pytest.fail("no tool call was ever seen")


async def test_patch_is_delivered_by_hand(world: DoorWorld) -> None:
    """A reviewed patch is applied later, all or nothing; the run shows the newest state, its log says who."""
    world.replies = (PLAN, WRITE, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        run = (await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 30_000})).json()
        path = f"/api/v1/runs/{run['id']}"
        delivered = await client.post(f"{path}/deliver")
        assert delivered.json()["delivery"] == {"mode": "apply", "status": "delivered", "ref": None}
        assert (world.root / "new.txt").read_text() == "new\n"
        assert (await client.get(path)).json()["delivery"]["status"] == "delivered"
        (line,) = (await client.get(f"{path}/history")).json()["data"]
        assert line["type"] == "delivery.completed"
        assert line["data"]["by"].startswith("key_")
        late = await client.post(f"{path}/discard")
        assert (late.status_code, late.json()["code"]) == (409, "precondition_failed")
        (world.root / "new.txt").write_text("mine\n")
        other = (await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 30_000})).json()
        (world.root / "new.txt").write_text("changed meanwhile\n")
        conflict = await client.post(f"/api/v1/runs/{other['id']}/deliver")
        assert conflict.json()["delivery"]["status"] == "conflict"
        assert (world.root / "new.txt").read_text() == "changed meanwhile\n"


async def wait_for_approval(client: Any, path: str) -> dict[str, Any]:
    """The run, once it waits for a person's word."""
    async with asyncio.timeout(60):
        while True:
            run = (await client.get(path)).json()
            assert run["terminal"] is None, run
            if (run["delivery"] or {}).get("status") == "awaiting_approval":
                return run
            await asyncio.sleep(0.05)


async def test_a_delivery_waits_for_approval(world: DoorWorld) -> None:
    """A waiting run shows its patch; deliver ends it delivered, discard ends it completed and discarded."""
    asked = {**BODY, "delivery": {"mode": "apply", "approval": "required"}}
    world.replies = (PLAN, WRITE, WORK, REVIEW)
    async with world.open() as door, door.client() as client:
        for route, status, applied in (("discard", "discarded", False), ("deliver", "delivered", True)):
            early = (await client.post("/api/v1/runs", json=asked)).json()
            path = f"/api/v1/runs/{early['id']}"
            waiting = await wait_for_approval(client, path)
            assert waiting["status"] == "finalizing"
            assert "new.txt" in (await client.get(f"{path}/patch")).text
            assert not (world.root / "new.txt").exists()
            told = (await client.post(f"{path}/{route}")).json()
            assert told["delivery"] == {"mode": "apply", "status": status, "ref": None}
            assert told["run"]["terminal"]["kind"] == "completed"
            assert (world.root / "new.txt").exists() is applied


async def test_discarded_and_unreviewed_patches_are_not_delivered(world: DoorWorld) -> None:
    """A discarded patch stays unapplied; an unreviewed one needs a binding that lets its callers."""
    world.replies = (WRITE, WORK, PLAN, REVIEW)
    async with world.open() as door, door.client() as client:
        run = (await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 30_000})).json()
        path = f"/api/v1/runs/{run['id']}"
        assert (await client.post(f"{path}/discard")).json()["delivery"]["status"] == "discarded"
        assert (await client.get(path)).json()["delivery"]["status"] == "discarded"
        assert (await client.post(f"{path}/deliver")).status_code == 409
        direct = (
            await client.post("/api/v1/runs", json={**BODY, "binding": "direct"}, params={"wait_ms": 30_000})
        ).json()
        for body in ({}, {"unreviewed": True}):
            refused = await client.post(f"/api/v1/runs/{direct['id']}/deliver", json=body)
            assert (refused.status_code, refused.json()["param"]) == (409, "unreviewed")
        assert not (world.root / "new.txt").exists()
