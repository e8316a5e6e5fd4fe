"""Keys in the store: under their hash, one living name a tenant; and what is read over many runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remit.contract import ApiKey
from remit.errors import NotFound, PreconditionFailed
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.testing._store_samples import reviewed_run, sample_submission
from remit.testing._store_suite_harness import store_write

MOMENT = datetime(2026, 11, 30, tzinfo=UTC)


def api_key(name: str, **fields: object) -> ApiKey:
    defaults = {"id": f"key_{name}", "name": name, "scopes": ("run", "read"), "created_at": MOMENT}
    return ApiKey.model_validate({**defaults, **fields})


async def test_key_is_found_by_its_hash_alone(tmp_path: Path) -> None:
    """R79: what is on disk is the hash; a key comes back with all that it was given."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        key = api_key("ci", bindings=("reviewed",), max_cost_usd="2.50", max_running=3)
        await store.add_key(key, key_hash="h1")
        assert await store.find_key("h1") == key
        assert await store.find_key("h2") is None
        assert await store.find_key("ci") is None


async def test_name_stands_for_one_living_key_of_its_tenant(tmp_path: Path) -> None:
    """A name is taken until its key is revoked; another tenant may have the same."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        await store.add_key(api_key("ci"), key_hash="h1")
        with pytest.raises(PreconditionFailed, match="named `ci`"):
            await store.add_key(api_key("ci", id="key_2"), key_hash="h2")
        await store.add_key(api_key("ci", id="key_3", tenant="other"), key_hash="h3")
        await store.revoke_key("ci")
        await store.add_key(api_key("ci", id="key_4"), key_hash="h4")
        assert [key.id for key in await store.list_keys(tenant="local")] == ["key_4", "key_ci"]
        assert len(await store.list_keys()) == 3


async def test_revoked_key_stays_revoked(tmp_path: Path) -> None:
    """Revoking twice changes nothing, and nobody revokes another tenant's key."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        await store.add_key(api_key("ci"), key_hash="h1")
        with pytest.raises(NotFound):
            await store.revoke_key("ci", tenant="other")
        revoked = await store.revoke_key("key_ci")
        assert revoked.revoked_at is not None
        assert (await store.revoke_key("ci")).revoked_at == revoked.revoked_at
        found = await store.find_key("h1")
        assert found is not None
        assert found.revoked_at == revoked.revoked_at
    with closing(sqlite3.connect(tmp_path / "remit.db")) as connection:
        assert connection.execute("SELECT count(*) FROM api_keys").fetchone() == (1,)


async def test_ledger_and_sessions_show_one_tenant(tmp_path: Path) -> None:
    """R78: totals and lists hold what is the tenant's own, each attempt once, with its key."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        with store.epochs.start() as epoch:
            for tenant in ("local", "other"):
                await store.submit(
                    sample_submission("run_ended", epoch=epoch.id, tenant=tenant, key_id=f"key_{tenant}")
                )
            claimed = await store.claim(epoch.id, run_id="run_ended")
            assert claimed is not None
            writes = list(reviewed_run(claimed.view))
            for write in writes:
                await store_write(store, claimed, write, last=write is writes[-1])
            await store.submit(sample_submission("run_queued", epoch=epoch.id))
            ledger = await store.read_ledger(tenant="local")
            assert [line.attempt.started.attempt_id for line in ledger] == [
                row.started.attempt_id for row in await store.read_attempts("run_ended")
            ]
            assert len(ledger) == 4
            assert {line.key_id for line in ledger} == {"key_local"}
            assert await store.read_ledger(tenant="other") == ()
            assert await store.read_ledger(tenant="local", end=MOMENT) == ()
            sessions, cursor = await store.list_sessions(tenant="local", limit=1)
            assert ([row.last_run_id for row in sessions], cursor) == (["run_queued"], "run_queued")
            sessions, cursor = await store.list_sessions(tenant="local", after=cursor)
            assert ([row.last_run_id for row in sessions], cursor) == (["run_ended"], None)
            assert [row.active_runs for row in sessions] == [0]
            assert await store.find_session("nobody", tenant="local") is None
            assert len((await store.list_sessions(tenant="other"))[0]) == 1
