"""What an operator answers for goes on record: who, what, when, from where, with what outcome."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import LOOK, PLAN, REVIEW, WORK, WRITE, Door, DoorWorld
from remit.cli import main
from remit.contract import AuditEntry
from remit.host import record_settings, settings_act

RUNS = "/api/v1/runs"
PROMPT = "The prompt holds a word that stays where it is: heliotrope."


def writing(home: Path, **binding: Any) -> DoorWorld:
    """A host whose runs write a file."""
    bindings = {"reviewed": {"workspace": "app", "profile": "reviewed", **binding}}
    return DoorWorld(home=home, replies=(PLAN, LOOK, WRITE, WORK, REVIEW), bindings=bindings)


async def ended(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    asked = {"binding": "reviewed", "prompt": PROMPT, **body}
    answer = await client.post(RUNS, json=asked, params={"wait_ms": 60_000})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def acts(door: Door, tenant: str = "local") -> list[AuditEntry]:
    """Oldest first, without the keys of the test itself."""
    entries = await door.host.store.read_audit(tenant=tenant, limit=1_000)
    return [entry for entry in reversed(entries) if entry.action != "key.created"]


def told(entry: AuditEntry) -> tuple[str, str, str, str | None, str]:
    return (entry.action, entry.actor, entry.subject, entry.origin, entry.outcome)


async def test_patch_delivered_by_hand_is_on_record(tmp_path: Path) -> None:
    """Deliveries and discards: by which key, from which address, with which words beyond the ordinary."""
    world = writing(tmp_path, allow_override=["delivery", "unreviewed", "allow_protected"])
    async with world.open() as door:
        secret = await door.add_key("hand", id="key_hand")
        async with door.client(secret) as client:
            other = await ended(client, delivery="patch")
            run = await ended(client, delivery="patch")
            assert await acts(door) == []
            assert (await client.post(f"{RUNS}/{other['id']}/discard")).status_code == 200
            delivered = await client.post(f"{RUNS}/{run['id']}/deliver", json={"allow_protected": True})
            assert delivered.json()["delivery"]["status"] == "delivered"
        second, first = await acts(door)
        subject = f"run {run['id']}"
        assert told(first) == ("delivery.ended", "key_hand", subject, "127.0.0.1", "delivered")
        assert first.data["allow_protected"] is True
        assert told(second)[:4] == ("delivery.discarded", "key_hand", f"run {other['id']}", "127.0.0.1")
        assert datetime.now(UTC) - first.at < timedelta(minutes=5)


async def test_approval_is_on_record_before_it_counts(tmp_path: Path) -> None:
    """Who approved, and then what came of it, by the key that the run was asked with."""
    async with writing(tmp_path).open() as door:
        asking, approving = [await door.add_key(name, id=f"key_{name}") for name in ("ask", "approve")]
        async with door.client(asking) as client, door.client(approving) as approver:
            asked = {"mode": "apply", "approval": "required"}
            body = {"binding": "reviewed", "prompt": PROMPT, "delivery": asked}
            run = (await client.post(RUNS, json=body)).json()
            path = f"{RUNS}/{run['id']}"
            early = await approver.post(f"{path}/deliver")
            async with asyncio.timeout(60):
                while ((await client.get(path)).json()["delivery"] or {}).get(
                    "status"
                ) != "awaiting_approval":
                    await asyncio.sleep(0.02)
            assert early.status_code == 409
            assert await acts(door) == []
            assert (await approver.post(f"{path}/deliver")).json()["delivery"]["status"] == "delivered"
        approved, delivered = await acts(door)
        subject = f"run {run['id']}"
        assert told(approved) == ("delivery.approved", "key_approve", subject, "127.0.0.1", "done")
        assert told(delivered) == ("delivery.ended", "key_ask", subject, None, "delivered")
        assert (delivered.data["mode"], delivered.data["paths"]) == ("apply", 1)


async def test_overrides_are_on_record_and_ordinary_requests_are_not(tmp_path: Path) -> None:
    """What a binding lets its callers set beyond what anybody may, and models: for each tenant apart."""
    world = writing(
        tmp_path, allow_override=["delivery", "unreviewed", "allow_protected"], allow_models=["demo:*"]
    )
    async with world.open() as door:
        secret = await door.add_key("other", id="key_other", tenant="other")
        async with door.client(secret) as client:
            await ended(client)
            assert await acts(door, "other") == []
            await ended(client, delivery="branch")
            run = await ended(client, unreviewed=True, stages={"work": {"model": "demo:m"}})
            refused = await client.post(RUNS, json={"binding": "reviewed", "prompt": "x", "in_place": True})
            assert refused.status_code == 422
        delivered, override = sorted(await acts(door, "other"), key=lambda entry: entry.action)
        assert delivered.action == "delivery.ended"
        assert told(override) == ("run.override", "key_other", f"run {run['id']}", "127.0.0.1", "done")
        assert override.data == {"binding": "reviewed", "overrides": ["unreviewed"], "models": ["demo:m"]}
        assert await acts(door) == []


async def test_calls_for_admins_are_on_record_refused_or_not(tmp_path: Path) -> None:
    """A key without the scope leaves its trace, too; one that isn't known has no tenant to leave it in."""
    async with DoorWorld(home=tmp_path).open() as door:
        reader = await door.add_key("reader", id="key_reader", scopes=("read",))
        async with door.client() as admin, door.client(reader) as other, door.client("") as nobody:
            assert (await admin.get("/api/v1/keys")).status_code == 200
            assert (await other.get("/api/v1/keys")).status_code == 403
            assert (await nobody.get("/api/v1/keys")).status_code == 401
            assert (await other.get("/api/v1/host")).status_code == 200
        entries = await acts(door)
        assert [(one.action, one.subject, one.outcome) for one in entries] == [
            ("admin.called", "call list_keys", "done"),
            ("admin.called", "call list_keys", "forbidden"),
        ]
        assert entries[1].actor == "key_reader"


async def test_the_same_look_again_is_no_news(tmp_path: Path) -> None:
    """Who collects metrics doesn't fill the record; another look, or one that ends otherwise, is on it."""
    async with DoorWorld(home=tmp_path).open() as door:
        reader = await door.add_key("reader", id="key_reader", scopes=("read",))
        async with door.client() as admin, door.client(reader) as other:
            for _ in range(5):
                assert (await admin.get("/metrics")).status_code == 200
                assert (await other.get("/metrics")).status_code == 403
            assert (await admin.get("/api/v1/keys")).status_code == 200
        assert [(one.subject, one.outcome) for one in await acts(door)] == [
            ("call metrics", "done"),
            ("call metrics", "forbidden"),
            ("call list_keys", "done"),
        ]


async def test_record_is_only_added_to_and_holds_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither keys nor prompts are in it; no statement changes it; each act is a line of the host's log."""
    caplog.set_level(logging.INFO, "remit.audit")
    world = writing(tmp_path, allow_override=["unreviewed"])
    async with world.open() as door:
        secret = await door.add_key("ci", max_cost_usd="5")
        async with door.client(secret) as client:
            await ended(client, unreviewed=True)
        await door.host.store.revoke_key("ci")  # type: ignore[attr-defined] - a SQLite store
        entries = await door.host.store.read_audit(tenant=None)
        assert [entry.action for entry in entries[:2]] == ["key.revoked", "run.override"]
        assert entries[0].data["max_cost_usd"] == 5
    text = "".join(entry.model_dump_json() for entry in entries) + caplog.text
    assert secret not in text
    assert "heliotrope" not in text
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "remit.audit"]
    assert [line["action"] for line in lines] == [entry.action for entry in reversed(entries)]
    with closing(sqlite3.connect(world.data / "remit.db")) as connection:
        for statement in ("UPDATE audit SET actor = 'x'", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="the audit record"):
                connection.execute(statement)


async def test_settings_that_changed_between_starts_are_on_record(tmp_path: Path) -> None:
    """Bindings, workspaces, webhooks: by name, against the last host served here; no value is shown."""
    world = writing(tmp_path)
    async with world.open() as door:
        first = await record_settings(door.host.store, world.config())
        assert first is not None
        assert {"binding reviewed", "workspace app", "provider demo", "webhooks"} <= {*first.data["added"]}
        assert await record_settings(door.host.store, world.config()) is None
        world.host_table = {"webhook_secret_env": "HOOKS", "max_running": 7}
        world.bindings = {
            "reviewed": {"workspace": "app", "delivery": "apply"},
            "quick": {"profile": "answer"},
        }
        second = await record_settings(door.host.store, world.config())
        assert second is not None
        shown = {name: second.data[name] for name in ("added", "removed", "changed")}
        assert shown == {
            "added": ["binding quick"],
            "removed": [],
            "changed": ["binding reviewed", "host", "webhooks"],
        }
        assert [entry.action for entry in await acts(door)] == ["host.configured"] * 2
    assert settings_act({"host": "1"}, {"host": "1"}) is None


def test_command_shows_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`remit audit` reads it without a host, for one tenant or all, as a table or as lines of JSON."""
    monkeypatch.setenv("REMIT_HOME", str(tmp_path / "data"))
    assert main(["audit"]) == 0
    assert "nothing is on record yet" in capsys.readouterr().err
    assert main(["keys", "create", "ci", "--scopes", "run,read", "--max-cost", "2.50"]) == 0
    assert main(["keys", "create", "b", "--tenant", "team-b", "--scopes", "read"]) == 0
    assert main(["keys", "revoke", "ci"]) == 0
    capsys.readouterr()
    assert main(["audit", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["action"], line["tenant"], line["actor"]) for line in lines] == [
        ("key.created", "local", "owner"),
        ("key.created", "team-b", "owner"),
        ("key.revoked", "local", "owner"),
    ]
    assert main(["audit", "--tenant", "local", "--limit", "1"]) == 0
    table = capsys.readouterr().out
    assert "key.revoked" in table
    assert "key.created" not in table
    assert main(["audit", "--before", str(lines[1]["id"]), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
