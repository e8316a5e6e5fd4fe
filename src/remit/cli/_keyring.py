"""What `remit keys` does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from rich.table import Table

from remit.api import hash_secret, new_secret
from remit.cli._formats import money
from remit.cli._screen import Results, console_on
from remit.cli._words import say
from remit.config import data_folder, make_data_folder
from remit.contract import ApiKey, say_fault
from remit.errors import InvalidRequest
from remit.primitives import SystemClock, SystemIds, usd_from_micros
from remit.requests import parse_duration_ms
from remit.storage import SqliteStore

T = TypeVar("T")


def create_key(
    name: str,
    *,
    tenant: str,
    scopes: str,
    bindings: str | None,
    max_cost: str | None,
    max_running: int | None,
    max_queued: int | None,
    expires: str | None,
) -> int:
    """Make a key and print it.

    Raises:
        InvalidRequest: Something that was typed can't be.
        PreconditionFailed: The name is taken.
    """
    clock = SystemClock()
    now = clock.now()
    fields: dict[str, Any] = {
        "id": SystemIds().new("key"),
        "name": name,
        "tenant": tenant,
        "scopes": _words(scopes),
        "bindings": None if bindings is None else _words(bindings),
        "max_cost_usd": max_cost,
        "max_running": max_running,
        "max_queued": max_queued,
        "created_at": now,
        "expires_at": None if expires is None else now + timedelta(milliseconds=parse_duration_ms(expires)),
    }
    try:
        key = ApiKey.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = str(first["loc"][0]) if first["loc"] else "key"
        raise InvalidRequest(f"{param}: {say_fault(first)}", param=param) from None
    secret = new_secret()
    with_store(lambda store: store.add_key(key, key_hash=hash_secret(secret)))
    say(f"key {key.name} ({key.id}) of tenant {key.tenant}: {', '.join(key.scopes)}; it isn't shown again")
    sys.stdout.write(f"{secret}\n")
    sys.stdout.flush()
    return 0


def list_keys(*, tenant: str | None, as_json: bool) -> int:
    """List keys."""
    found = with_store(lambda store: _keys_and_spent(store, tenant))
    if as_json:
        results = Results()
        for key, spent in found:
            results.write_json({**key.to_json(), "spent_usd": spent})
        return 0
    if not found:
        say("no keys yet; `remit serve` makes the first one, `remit keys create` others")
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("name", "tenant", "scopes", "bindings", "spent", "limits", "state", "id"):
        table.add_column(column, header_style="dim", overflow="fold")
    for key, spent in found:
        table.add_row(*_cells(key, spent))
    console_on(sys.stdout).print(table)
    return 0


def revoke_key(name: str, *, tenant: str) -> int:
    """End a key.

    Raises:
        NotFound: The tenant has none of that name.
    """
    key = with_store(lambda store: store.revoke_key(name, tenant=tenant))
    say(f"key {key.name} ({key.id}) of tenant {key.tenant} is revoked")
    return 0


async def _keys_and_spent(store: SqliteStore, tenant: str | None) -> list[tuple[ApiKey, float]]:
    """Keys, and what the runs of each have cost, in USD."""
    keys = await store.list_keys(tenant=tenant)
    spent = {name: await store.read_spent(tenant=name) for name in {key.tenant for key in keys}}
    return [(key, usd_from_micros(spent[key.tenant].get(key.id, 0))) for key in keys]


def _cells(key: ApiKey, spent: float) -> tuple[str, ...]:
    limits = [f"{key.max_running} at once"] if key.max_running is not None else []
    limits += [f"{key.max_queued} waiting"] if key.max_queued is not None else []
    return (
        key.name,
        key.tenant,
        ",".join(key.scopes),
        "all" if key.bindings is None else ",".join(key.bindings),
        money(spent) if key.max_cost_usd is None else f"{money(spent)} of {money(float(key.max_cost_usd))}",
        ", ".join(limits) or "-",
        _state(key),
        key.id,
    )


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "lives"
    if key.expires_at <= SystemClock().now():
        return "expired"
    return f"until {key.expires_at:%Y-%m-%d}"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def with_store(act: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Do something with the store of this machine's data folder."""

    async def run() -> T:
        folder = make_data_folder(data_folder(os.environ))
        async with SqliteStore.open(folder, clock=SystemClock()) as store:
            return await act(store)

    return asyncio.run(run())
