"""Keys of callers, under the hash of each: the key itself is shown once and kept nowhere."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from remit.contract import ApiKey, AuditAction, AuditFact
from remit.errors import NotFound, PreconditionFailed
from remit.primitives import clean_text, format_time
from remit.storage._transaction import Transaction

_SELECT = "SELECT id, record, revoked_at FROM api_keys"


def find_key(connection: sqlite3.Connection, key_hash: str) -> ApiKey | None:
    """The key of a hash, a revoked one too; None: there is none."""
    row = connection.execute(_SELECT + " WHERE hash = ?", (key_hash,)).fetchone()
    return None if row is None else _api_key(row)


def list_keys(connection: sqlite3.Connection, tenant: str | None) -> tuple[ApiKey, ...]:
    """The keys of a tenant, or of all, in the order in which they were made."""
    wanted = None if tenant is None else clean_text(tenant)[0]
    rows = connection.execute(
        _SELECT + " WHERE ? IS NULL OR tenant = ? ORDER BY created_at, id", (wanted, wanted)
    )
    return tuple(_api_key(row) for row in rows)


def _api_key(row: tuple[Any, ...]) -> ApiKey:
    _, record, revoked_at = row
    key = ApiKey.model_validate_json(record)
    return key if revoked_at is None else ApiKey.model_validate({**dict(key), "revoked_at": revoked_at})


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKey:
    """`add_key`."""

    key: ApiKey
    key_hash: str
    weight: int = 1
    closing: bool = False

    def run(self, transaction: Transaction) -> None:
        """Store it, unless a living key has its name."""
        key = self.key
        there = transaction.connection.execute(
            "SELECT id, record FROM api_keys WHERE tenant = ? AND name = ? AND revoked_at IS NULL",
            (key.tenant, key.name),
        ).fetchone()
        if there is not None:
            raise PreconditionFailed(
                f"a key named `{key.name}` lives already ({there[0]}): revoke it, or take another name"
            )
        transaction.connection.execute(
            "INSERT INTO api_keys (id, hash, tenant, name, created_at, record) VALUES (?, ?, ?, ?, ?, ?)",
            (
                key.id,
                self.key_hash,
                key.tenant,
                key.name,
                format_time(key.created_at),
                key.model_dump_json(exclude={"revoked_at"}),
            ),
        )
        transaction.audit(key.tenant, _act("key.created", key))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeKey:
    """`revoke_key`."""

    name: str
    """Its id, or its name."""
    tenant: str
    weight: int = 1
    closing: bool = True

    def run(self, transaction: Transaction) -> ApiKey:
        """End it; one that was revoked before stays as it is."""
        row = transaction.connection.execute(
            _SELECT + " WHERE tenant = ? AND (id = ? OR name = ?)"
            " ORDER BY revoked_at IS NOT NULL, created_at DESC",
            (self.tenant, self.name, self.name),
        ).fetchone()
        if row is None:
            raise NotFound(f"there is no key `{self.name}`; `remit keys list` shows those there are")
        key_id, record, revoked_at = row
        if revoked_at is None:
            revoked_at = format_time(transaction.clock.now())
            transaction.connection.execute(
                "UPDATE api_keys SET revoked_at = ? WHERE id = ?", (revoked_at, key_id)
            )
            key = _api_key((key_id, record, revoked_at))
            transaction.audit(key.tenant, _act("key.revoked", key))
            return key
        return _api_key((key_id, record, revoked_at))


def _act(action: AuditAction, key: ApiKey) -> AuditFact:
    """Keys are made and ended by the owner of the machine alone."""
    shown = key.model_dump(mode="json", exclude={"id", "tenant", "created_at", "revoked_at"})
    return AuditFact(action=action, subject=f"key {key.id}", data=shown)
