"""What `remit audit` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

from rich.table import Table

from remit.cli._keyring import with_store
from remit.cli._screen import Results, console_on
from remit.cli._words import one_line, say
from remit.contract import AuditEntry

_LABEL_COLUMNS = 200


def show_audit(*, tenant: str | None, limit: int, before: int | None, as_json: bool) -> int:
    """Show acts, the newest last."""
    found = with_store(lambda store: store.read_audit(tenant=tenant, before=before, limit=limit))
    if as_json:
        results = Results()
        for entry in reversed(found):
            results.write_json(entry.to_json())
        return 0
    if not found:
        say("nothing is on record yet")
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("id", "when", "tenant", "who", "from", "act", "what", "outcome", ""):
        table.add_column(column, header_style="dim", overflow="fold")
    for entry in reversed(found):
        table.add_row(*_cells(entry))
    console_on(sys.stdout).print(table)
    return 0


def _cells(entry: AuditEntry) -> Iterator[str]:
    yield str(entry.id)
    yield f"{entry.at:%Y-%m-%d %H:%M:%S}Z"
    yield from (entry.tenant, entry.actor, entry.origin or "here", entry.action)
    yield one_line(entry.subject, width=_LABEL_COLUMNS)
    yield entry.outcome
    yield one_line(_told(entry), width=_LABEL_COLUMNS)


def _told(entry: AuditEntry) -> str:
    """The act's data in short: what is set, without fingerprints."""
    shown = {
        name: ", ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else value
        for name, value in entry.data.items()
        if name != "fingerprints" and value not in (None, False, [], {})
    }
    return "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
