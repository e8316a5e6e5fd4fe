"""What a host that is served puts on the audit record, and takes off it.

What changed in its settings since it last started: names and fingerprints, never a value.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NoReturn, Protocol

from pydantic import BaseModel

from remit.config import Config
from remit.contract import AuditEntry, AuditFact
from remit.errors import StorageError
from remit.primitives import Clock, dump_json

_log = logging.getLogger(__name__)
_SHOWN_CHARS: Final = 16
_TRIMMED_EVERY_S: Final = 24 * 3600.0
_PAGE: Final = 1_000


class AuditRecord(Protocol):
    """Where acts are recorded."""

    async def record(self, act: AuditFact, *, tenant: str = "local") -> None:
        """Put an act on the record."""
        ...

    async def read_audit(
        self, *, tenant: str | None = "local", before: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """The record, the newest entry first."""
        ...


class TrimmedRecord(Protocol):
    """Where acts are taken off the record."""

    async def trim_audit(self, *, before: datetime) -> int:
        """Take off what is older."""
        ...


async def record_settings(record: AuditRecord, config: Config) -> AuditFact | None:
    """Record what of the settings isn't as the last host that was served here had it; None: nothing."""
    act = settings_act(fingerprints(config), await _find_last(record))
    if act is not None:
        await record.record(act)
    return act


async def keep_audit_short(record: TrimmedRecord, clock: Clock, *, days: int) -> NoReturn:
    """Take off the audit record, now and once a day, what is older than `days`; until it is cancelled."""
    while True:
        try:
            await record.trim_audit(before=clock.now() - timedelta(days=days))
        except StorageError as error:  # a full disk, say: nothing is lost by waiting until tomorrow
            _log.warning("old acts stay on the audit record for now: %s", error)
        await clock.sleep(_TRIMMED_EVERY_S)


def settings_act(now: Mapping[str, str], before: Mapping[str, str]) -> AuditFact | None:
    """The act of starting with these settings after those; None where they are the same. Pure."""
    if now == before:
        return None
    data = {
        "added": sorted(now.keys() - before.keys()),
        "removed": sorted(before.keys() - now.keys()),
        "changed": sorted(name for name in now.keys() & before.keys() if now[name] != before[name]),
        "fingerprints": dict(now),
    }
    return AuditFact(action="host.configured", subject="host", data=data)


def fingerprints(config: Config) -> dict[str, str]:
    """Name of a setting -> a hash of what it says. Settings name secrets and don't hold them."""
    return {
        name: sha256(dump_json(value).encode()).hexdigest()[:_SHOWN_CHARS] for name, value in _named(config)
    }


def _named(config: Config) -> Iterator[tuple[str, Any]]:
    table = config.host.model_dump(mode="json")
    yield "host", {name: value for name, value in table.items() if not name.startswith("webhook")}
    yield "webhooks", {name: value for name, value in table.items() if name.startswith("webhook")}
    tables: tuple[tuple[str, Mapping[str, BaseModel]], ...] = (
        ("binding", config.bindings),
        ("pool", config.pools),
        ("provider", config.providers),
        ("workspace", config.workspaces),
        ("MCP server", config.servers),
    )
    for kind, named in tables:
        for name, value in named.items():
            yield f"{kind} {name}", value.model_dump(mode="json")


async def _find_last(record: AuditRecord) -> Mapping[str, str]:
    before: int | None = None
    while True:
        page = await record.read_audit(before=before, limit=_PAGE)
        for entry in page:
            if entry.action == "host.configured":
                return entry.data["fingerprints"]
        if len(page) < _PAGE:
            return {}
        before = page[-1].id
