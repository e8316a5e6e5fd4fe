"""Settings from the environment: `REMIT_HOST__LISTEN` is `host.listen`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.primitives import StrictJsonError, load_json

_PREFIX = "REMIT_"


def environment_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Every `REMIT_A__B` as a nested setting.

    Only names with at least one `__` are settings; `REMIT_HOME`, `REMIT_HOST` and `REMIT_API_KEY` have
    meanings of their own. Values are JSON where they parse as a number, a boolean, a list or an object;
    else they are text.
    """
    settings: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith(_PREFIX) or "__" not in name:
            continue
        parts = name.removeprefix(_PREFIX).lower().split("__")
        if all(parts):
            _put(settings, parts, _value(environment[name]))
    return settings


def _put(settings: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        inner = settings.get(part)
        if not isinstance(inner, dict):
            inner = settings[part] = {}
        settings = inner  # pyright: ignore[reportUnknownVariableType] - it was made here
    settings[parts[-1]] = value


def _value(text: str) -> Any:
    try:
        value = load_json(text)
    except StrictJsonError:
        return text
    return text if isinstance(value, str) or value is None else value
