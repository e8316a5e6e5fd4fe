"""What all runs of a key may cost together: reserved before, settled after, remembered over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2

from door_kit import LOOK, PLAN, REVIEW, WORK, Door, DoorWorld, add_key
from remit.contract import KeySpending
from remit.usage import LedgerRow

RUNS = "/api/v1/runs"
BODY = {"binding": "answer", "prompt": "What is it?"}
USAGE = {"input_tokens": 0, "output_tokens": 500}
REPLY = {"stage": "work", "text": "Half a dollar.", "usage": USAGE, "delay_ms": 50}
"""At `PRICES`: 0.50 USD."""
PRICES = {"demo:m": {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1000}}


class PricedWorld(DoorWorld):
    """A host whose model has a price."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "prices": PRICES}


def priced(home: Path, replies: Sequence[dict[str, Any]] = (REPLY,)) -> PricedWorld:
    return PricedWorld(home=home, replies=replies, bindings={"answer": {"profile": "answer"}})


async def ask(client: httpx2.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await client.post(RUNS, json={**BODY, **more}, params={"wait_ms": 60_000})
    return {"http": answer.status_code, **answer.json()}


async def spent_of(door: Door, name: str) -> float:
    async with door.client() as client:
        keys = (await client.get("/api/v1/keys")).json()["data"]
    (spent,) = [key["spent_usd"] for key in keys if key["name"] == name]
    return spent


async def test_twenty_at_once_never_pass_the_cap(tmp_path: Path) -> None:
    """A key's cap holds over all its runs at once, whatever each of them may cost by itself."""
    async with priced(tmp_path).open() as door:
        secret = await door.add_key("capped", max_cost_usd="2.2")
        async with door.client(secret) as client:
            for _ in range(3):
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(ask(client)) for _ in range(20)]
                assert {one.result()["http"] for one in asked} <= {201, 402, 429}
                assert 0.5 <= await spent_of(door, "capped") <= 2.2
            ended = (await client.get(RUNS, params={"limit": 500})).json()["data"]
            completed = [run for run in ended if run["status"] == "completed"]
            assert sum(run["cost_usd"] for run in completed) == await spent_of(door, "capped")
            stopped = next(run for run in ended if run["status"] == "failed")
            assert (stopped["terminal"]["class"], stopped["terminal"]["code"]) == ("budget", "cost")
            assert stopped["terminal"]["limit"]["kind"] == "max_cost_usd"
            assert stopped["terminal"]["limit"]["cap"] == 2.2


async def test_cap_that_is_spent_says_so_in_each_dialect(tmp_path: Path) -> None:
    """What was spent and the cap are told; it is final, and an earlier request keeps its run."""
    cut = {"stage": "work", "text": "Half", "cut": True}
    async with priced(tmp_path, (cut,)).open() as door:
        secret = await door.add_key("capped", max_cost_usd="1.5")
        async with door.client(secret) as client:
            first = await ask(client, id="first")
            assert first["status"] == "failed"
            # A stream that broke off counts at its worst, which was all that the key had.
            assert await spent_of(door, "capped") == 1.5
            refused = await client.post(RUNS, json=BODY)
            problem = refused.json()
            assert (refused.status_code, problem["code"], problem["retryable"]) == (402, "cap_spent", False)
            assert "have cost 1.5 USD of the 1.5 that" in problem["detail"]
            dry = await client.post(RUNS, json=BODY, params={"dry_run": "1"})
            assert (dry.status_code, dry.json()["code"]) == (402, "cap_spent")
            again = await client.post(RUNS, json={**BODY, "id": "first"})
            assert (again.status_code, again.json()["id"]) == (200, "first")
            chat = {"model": "answer", "messages": [{"role": "user", "content": "What is it?"}]}
            told = await client.post("/v1/chat/completions", json=chat)
            assert (told.status_code, told.json()["error"]["code"]) == (402, "insufficient_quota")
            assert told.headers["x-should-retry"] == "false"
            told = await client.post("/v1/messages", json={**chat, "max_tokens": 100})
            assert (told.status_code, told.json()["error"]["type"]) == (402, "billing_error")


async def test_cap_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """What was spent is read from the ledger; another key starts with nothing spent."""
    world = priced(tmp_path)
    async with world.open() as door:
        secret = await door.add_key("capped", max_cost_usd="2.2")
        async with door.client(secret) as client:
            assert [(await ask(client))["status"] for _ in range(3)] == ["completed"] * 3
    async with world.open(key_name="again") as door, door.client(secret) as client:
        assert await spent_of(door, "capped") == 1.5
        last = await ask(client)
        assert (last["status"], last["terminal"]["code"]) == ("failed", "cost")
        assert last["terminal"]["limit"] == {"kind": "max_cost_usd", "value": 2.524, "cap": 2.2}
        fresh = await door.add_key("fresh", max_cost_usd="2.2")
        async with door.client(fresh) as other:
            assert (await ask(other))["status"] == "completed"


async def test_cap_of_a_key_needs_prices(tmp_path: Path) -> None:
    """A model without a price is refused under a key's cap, also where the caller caps tokens instead."""
    world = DoorWorld(home=tmp_path, replies=(REPLY,), bindings={"answer": {"profile": "answer"}})
    settings = world.settings()
    settings["providers"]["dear"] = {"kind": "openai-compatible", "base_url": "http://127.0.0.1:9/v1"}
    settings["bindings"]["dear"] = {"profile": "answer", "work": {"model": "dear:unknown"}}

    class Unpriced(DoorWorld):
        def settings(self) -> dict[str, Any]:
            return settings

    async with Unpriced(home=tmp_path).open() as door:
        secret = await door.add_key("capped", max_cost_usd="1")
        async with door.client(secret) as client:
            body = {"binding": "dear", "prompt": "x", "limits": {"max_total_tokens": 10_000}}
            refused = await client.post(RUNS, json=body)
            assert (refused.status_code, refused.json()["code"]) == (422, "price_unknown")
            assert "of the key" in refused.json()["detail"]


async def test_key_that_expires_starts_nothing_more(tmp_path: Path) -> None:
    """R77: from its moment on a key is as good as none; its spending is known all the same."""
    async with priced(tmp_path).open() as door:
        soon = datetime.now(UTC) + timedelta(hours=1)
        secret = await door.add_key("brief", max_cost_usd="5", expires_at=soon)
        async with door.client(secret) as client:
            assert (await ask(client))["status"] == "completed"
            past = await add_key(door.host, "past", expires_at=datetime.now(UTC) - timedelta(seconds=1))
            told = await client.post(RUNS, json=BODY, headers={"Authorization": f"Bearer {past}"})
            assert (told.status_code, told.json()["code"]) == (401, "unauthenticated")
            assert "expired" in told.json()["detail"]
        assert await spent_of(door, "brief") == 0.5


def paid(reply: dict[str, Any]) -> dict[str, Any]:
    """The same reply, for 0.10 USD."""
    return {**reply, "usage": {"input_tokens": 0, "output_tokens": 100}}


SPLIT = {"stage": "work", "tool_calls": [{"name": "delegate", "arguments": {"prompt": "Mend a part."}}]}


async def test_children_spend_from_their_parents_key(tmp_path: Path) -> None:
    """A child run's requests are its parent's key's: in its budget, and in the ledger."""
    replies = [paid(one) for one in (PLAN, SPLIT, LOOK, WORK, REVIEW)]
    world = priced(tmp_path, replies)
    world.bindings = {"reviewed": {"workspace": "app", "profile": "reviewed", "delegate": True}}
    async with world.open() as door:
        secret = await door.add_key("capped", id="key_capped", max_cost_usd="20")
        async with door.client(secret) as client:
            run = await ask(client, binding="reviewed")
            assert run["status"] == "completed"
            assert await spent_of(door, "capped") == run["cost_usd"]
            runs, _ = await door.host.store.list_runs()
            assert len(runs) > 1
            assert {one.key_id for one in runs} == {"key_capped"}
            by_key = (await client.get("/api/v1/usage", params={"group_by": "key"})).json()
            assert [group["group"] for group in by_key["data"]] == ["key_capped"]


async def test_what_is_unknown_counts_at_its_worst(tmp_path: Path) -> None:
    """The sum of a key's spending is the sum of what each attempt can have cost at most."""
    replies = ({"stage": "work", "text": "Half", "cut": True, "when": {"contains": "CUT"}}, REPLY)
    async with priced(tmp_path, replies).open() as door:
        secret = await door.add_key("capped", id="key_capped", max_cost_usd="5000")
        async with door.client(secret) as client:
            for prompt in ("CUT", "whole"):
                await ask(client, prompt=prompt, limits={"max_cost_usd": 40})
        ledger = await door.host.store.read_ledger(tenant="local")  # type: ignore[attr-defined] - a SQLite store
        rows = [
            LedgerRow.of(line.attempt.run_id, line.attempt.started, line.attempt.ended) for line in ledger
        ]
        assert {row.coverage for row in rows} == {"interrupted", "reported"}
        most = sum(row.most_micros or 0 for row in rows)
        found = await door.host.store.find_spending("key_capped", tenant="local")  # type: ignore[attr-defined] - a SQLite store
        assert found == KeySpending(name="capped", max_cost_usd=Decimal(5000), spent_micros=most)
        assert await door.host.store.find_spending("key_none", tenant="local") is None  # type: ignore[attr-defined] - as above
