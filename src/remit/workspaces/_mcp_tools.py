"""The tools of MCP servers, as a model is told of them. What a server says of itself is a stranger's text.

Names are made fit for every provider, texts are cleaned, bounded and marked, schemas are bounded and kept to
one object; what can't be made fit is left out, and said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from remit.contract import ToolSpec
from remit.primitives import clean_text, dump_json

__all__ = ["PLUGIN_PREFIX", "ListedTool", "Listing", "OfferedTool", "list_offers"]

PLUGIN_PREFIX: Final = "mcp__"
MAX_TOOLS: Final = 128
"""Of one server."""
MAX_SCHEMA_BYTES: Final = 16_384
MAX_LISTING_BYTES: Final = 262_144
"""Of one server: names, descriptions and schemas together."""
_MAX_NAME_CHARS: Final = 64
_MAX_DESCRIPTION_CHARS: Final = 2_048
_MAX_DEPTH: Final = 24
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH_CHARS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    reads_only: bool
    """Whether the server marks it as changing nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of a server that runs may use."""

    server: str
    name: str
    """What the server calls it."""
    spec: ToolSpec
    """What a model is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a server offers, made fit."""

    tools: tuple[ListedTool, ...]
    left_out: tuple[str, ...]
    """Tools that aren't offered, and why, in words."""


def list_offers(server: str, offers: Sequence[OfferedTool]) -> Listing:
    """Make a server's tools fit for a model.

    Args:
        server: Its configured name.
        offers: What it says, in its own order, which is kept.
    """
    tools: dict[str, ListedTool] = {}
    left_out: list[str] = []
    seen: set[str] = set()
    room = MAX_LISTING_BYTES
    for offer in offers:
        spec, problem = _spec(server, offer, taken=tools)
        if offer.name in seen:
            spec, problem = None, "it is offered twice"
        seen.add(offer.name)
        size = 0 if spec is None else len(dump_json(spec.to_json()))
        if spec is None:
            left_out.append(f"{_shown(offer.name)}: {problem}")
        elif len(tools) >= MAX_TOOLS or size > room:
            left_out.append(f"{_shown(offer.name)}: the server offers more than a model can be told of")
        else:
            room -= size
            tools[spec.name] = ListedTool(server=server, name=offer.name, spec=spec)
    return Listing(tools=tuple(tools.values()), left_out=tuple(left_out))


def _spec(server: str, offer: OfferedTool, *, taken: Mapping[str, object]) -> tuple[ToolSpec | None, str]:
    """The tool as a model is told of it; None, and why, where that can't be."""
    if not offer.name:
        return None, "it has no name"
    schema, problem = _parameters(offer.schema)
    if schema is None:
        return None, problem
    name = _name(server, offer.name, taken)
    effect: Literal["read", "command"] = "read" if offer.reads_only else "command"
    words = _description(server, offer)
    return ToolSpec(name=name, description=words, parameters=schema, effect=effect, plugin=server), ""


def _name(server: str, tool: str, taken: Mapping[str, object]) -> str:
    """`mcp__SERVER__TOOL`, in letters that all providers take; a changed name ends in a hash."""
    prefix = f"{PLUGIN_PREFIX}{server}__"
    fit = _UNFIT.sub("_", tool)
    if fit == tool and len(prefix) + len(fit) <= _MAX_NAME_CHARS and prefix + fit not in taken:
        return prefix + fit
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    room = _MAX_NAME_CHARS - len(prefix) - _HASH_CHARS - 1
    return f"{prefix}{fit[:room]}_{mark}"


def _description(server: str, offer: OfferedTool) -> str:
    text, _ = clean_text(offer.description)
    text = " ".join(_printable(text).split())
    if len(text) > _MAX_DESCRIPTION_CHARS:
        text = text[: _MAX_DESCRIPTION_CHARS - 1] + "…"
    return f"[tool of the MCP server {server}; its own words follow] {text or '(it says nothing)'}"


def _parameters(schema: Mapping[str, Any]) -> tuple[dict[str, object] | None, str]:
    """The schema of its arguments, as one object with stated properties; None, and why."""
    try:
        cleaned = cast("dict[str, object]", _cleaned(schema, depth=0))
        size = len(dump_json(cleaned))
    except _Unfit as unfit:
        return None, str(unfit)
    except (TypeError, ValueError, RecursionError):
        return None, "the schema of its arguments isn't JSON"
    if size > MAX_SCHEMA_BYTES:
        return None, f"the schema of its arguments has {size} bytes; at most {MAX_SCHEMA_BYTES} fit"
    if cleaned.get("type", "object") != "object":
        return None, "its arguments aren't an object"
    cleaned["type"] = "object"
    if not isinstance(cleaned.get("properties"), dict):
        cleaned["properties"] = {}
    required = cleaned.get("required")
    known = cast("dict[str, object]", cleaned["properties"])
    names = cast("list[object]", required) if isinstance(required, list) else []
    cleaned["required"] = [name for name in names if isinstance(name, str) and name in known]
    return cleaned, ""


class _Unfit(ValueError):
    """The schema can't be used."""


def _cleaned(value: object, *, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise _Unfit(f"the schema of its arguments is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        return _printable(clean_text(value)[0])
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {_printable(str(key)): _cleaned(item, depth=depth + 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, depth=depth + 1) for item in cast("Sequence[object]", value)]
    return value


def _printable(text: str) -> str:
    """Without control characters and characters that hide text or turn it around."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def _shown(name: str) -> str:
    return _printable(name[:_MAX_NAME_CHARS]) or "a tool without a name"
