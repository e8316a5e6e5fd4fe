"""The reference page of the settings, from the models that a `remit.toml` is read into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from reference_shapes import summary, table


def tables_of(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every table that a file may have, as `providers.NAME` or `nodes.NAME.workspaces[]`, with its model."""
    for name, field in model.model_fields.items():
        key = f"{path}.{field.alias or name}" if path else field.alias or name
        for place, inner in _models_in(field.annotation, key):
            yield place, inner
            yield from tables_of(inner, place)


def _models_in(annotation: Any, place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models inside a type: behind a name in a table of tables, one of many in a list, or plain."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        if issubclass(annotation, BaseModel):
            yield place, annotation
    elif origin in {dict, Mapping}:
        yield from _models_in(inner[1], f"{place}.NAME")
    elif origin in {tuple, list}:
        yield from _models_in(inner[0], f"{place}[]")
    else:
        for part in inner:
            yield from _models_in(part, place)


def page_of(root: type[BaseModel]) -> str:
    """The page: the top keys, then each table. A table that stands in two places is shown once."""
    lines = [f"# Settings\n\n{summary(root)}\n\n{table(root)}"]
    places: dict[type[BaseModel], list[str]] = {}
    for place, model in tables_of(root):
        places.setdefault(model, []).append(place)
    for model, found in places.items():
        heading = ", ".join(f"`{place}`" for place in dict.fromkeys(found))
        lines.append(f"## {heading}\n\n{summary(model)}\n\n{table(model)}")
    return "\n".join(lines)
