"""What `remit audit` does."""

from __future__ import annotations

import sys
from typing import Any, cast

from rich.text import Text

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
    console = console_on(sys.stdout)
    for entry in reversed(found):
        console.print(_line(entry), soft_wrap=True)
    return 0


def _line(entry: AuditEntry) -> Text:
    """An act in one line, however long: it's searched through more often than read."""
    who = f"{entry.actor} ({entry.tenant}) from {entry.origin or 'here'}"
    style = "" if entry.outcome == "done" else "red"
    return Text.assemble(
        (f"{entry.id:<5} {entry.at:%Y-%m-%d %H:%M:%S}Z  ", "dim"),
        (f"{entry.action:<20} ", "bold"),
        (f"{entry.outcome:<8} ", style),
        f"{one_line(entry.subject, width=_LABEL_COLUMNS)}  by {one_line(who, width=_LABEL_COLUMNS)}",
        (f"  {one_line(_told(entry), width=_LABEL_COLUMNS)}", "dim"),
    )


def _told(entry: AuditEntry) -> str:
    """The act's data in short: what is set, without fingerprints."""
    shown = {
        name: ", ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else value
        for name, value in entry.data.items()
        if name != "fingerprints" and value not in (None, False, [], {})
    }
    return "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
