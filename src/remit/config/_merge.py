"""Putting settings over one another: later ones win, tables are joined, strangers' limits only narrow."""

from __future__ import annotations

from typing import Any, cast

Table = dict[str, Any]


def merge_settings(under: Table, over: Table) -> Table:
    """`over` on top of `under`: tables joined key by key, workspaces by their ref, all else replaced."""
    merged = dict(under)
    for key, value in over.items():
        present = merged.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merged[key] = merge_settings(cast("Table", present), cast("Table", value))
        elif key == "workspaces" and isinstance(present, list) and isinstance(value, list):
            merged[key] = _merge_workspaces(cast("list[Any]", present), cast("list[Any]", value))
        else:
            merged[key] = value
    return merged


def narrow_limits_of(under: Table, over: Table) -> Table:
    """`over`, with every limit of its bindings lowered to what `under` allows."""
    bindings = over.get("bindings")
    if not isinstance(bindings, dict):
        return over
    allowed = cast("Table", under.get("bindings", {}))
    narrowed: Table = {}
    for name, binding in cast("Table", bindings).items():
        known = allowed.get(name)
        narrowed[name] = _narrowed(cast("Table", known), binding) if isinstance(known, dict) else binding
    return {**over, "bindings": narrowed}


def _narrowed(known: Table, binding: Any) -> Any:
    if not isinstance(binding, dict):
        return binding
    table = cast("Table", binding)
    mine, theirs = known.get("limits"), table.get("limits")
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return table
    limits = dict(cast("Table", theirs))
    for key, cap in cast("Table", mine).items():
        asked = limits.get(key)
        if isinstance(cap, int | float) and isinstance(asked, int | float):
            limits[key] = min(cap, asked)
    return {**table, "limits": limits}


def _merge_workspaces(under: list[Any], over: list[Any]) -> list[Any]:
    merged = {_ref(table, number): table for number, table in enumerate(under)}
    for number, table in enumerate(over):
        key = _ref(table, number + len(under))
        present = merged.get(key)
        both = isinstance(present, dict) and isinstance(table, dict)
        merged[key] = merge_settings(cast("Table", present), cast("Table", table)) if both else table
    return list(merged.values())


def _ref(table: Any, number: int) -> Any:
    ref = cast("Table", table).get("ref") if isinstance(table, dict) else None
    return ref if isinstance(ref, str) else number
