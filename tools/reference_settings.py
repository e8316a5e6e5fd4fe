"""The reference page of the settings, from the models that a `remit.toml` is read into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from reference_shapes import summary, table
from remit.admission import Binding
from remit.config._schema import FileShape
from remit.models import PoolSettings
from remit.usage import PriceSetting
from remit.workspaces import McpServer, WorkspaceSettings

OWNERS: dict[str, type[BaseModel]] = {
    "pools.NAME": PoolSettings,
    "bindings.NAME": Binding,
    "nodes.NAME.workspaces[]": WorkspaceSettings,
    "mcp.servers.NAME": McpServer,
    "prices.NAME": PriceSetting,
}
"""Tables that another room than `config` owns, with the model that it checks them by."""

NAMED_BY_KEY = {Binding, PoolSettings}
"""Models whose `name` is the key of their table."""

FOREWORD = """Flags win over the environment, the environment over files, files over defaults.
`REMIT_HOST__LISTEN` in the environment is `host.listen` in a file. A key that isn't listed here is refused.
"""


def settings_page() -> str:
    """Every table of a file with its keys."""
    return page_of(FileShape, OWNERS)


def tables_of(
    model: type[BaseModel], owners: Mapping[str, type[BaseModel]], path: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every table that a file may have, as `providers.NAME` or `nodes.NAME.workspaces[]`, with its model."""
    for name, field in model.model_fields.items():
        key = f"{path}.{field.alias or name}" if path else field.alias or name
        for place, found in _tables_in(field.annotation, key):
            inner = found or owners.get(place)
            if inner is not None:
                yield place, inner
                yield from tables_of(inner, owners, place)


def _tables_in(annotation: Any, place: str) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """The tables inside a type; None where the type leaves open what they hold."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        if issubclass(annotation, BaseModel):
            yield place, annotation
    elif origin in {dict, Mapping} and inner[1] is Any:
        yield place, None
    elif origin in {dict, Mapping}:
        yield from _tables_in(inner[1], f"{place}.NAME")
    elif origin in {tuple, list}:
        yield from _tables_in(inner[0], f"{place}[]")
    else:
        for part in inner:
            yield from _tables_in(part, place)


def page_of(root: type[BaseModel], owners: Mapping[str, type[BaseModel]]) -> str:
    """The page: each table with its keys. A shape that stands in several places is shown once."""
    places: dict[type[BaseModel], list[str]] = {}
    for place, model in tables_of(root, owners):
        places.setdefault(model, []).append(place)
    lines = [f"# Settings\n\n{FOREWORD}"]
    for model, found in places.items():
        heading = ", ".join(f"`{place}`" for place in dict.fromkeys(found))
        keys = table(model, leave_out={"name"} if model in NAMED_BY_KEY else set())
        lines.append(f"## {heading}\n\n{summary(model)}\n\n{keys}")
    return "\n".join(lines)
