"""Turns a pydantic model into a table: keys, types, defaults, and what each field says of itself."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import TypeIs


def table(model: type[BaseModel], *, defaults: bool = True, leave_out: Collection[str] = ()) -> str:
    """The model's fields as a Markdown table, but for those left out."""
    head = "| key | type | default | meaning |\n|---|---|---|---|\n"
    plain = "| key | type | meaning |\n|---|---|---|\n"
    rows: list[str] = []
    for name, field in model.model_fields.items():
        if name in leave_out:
            continue
        cells = [f"`{field.alias or name}`", f"`{type_name(field.annotation)}`"]
        if defaults:
            cells.append(_default(field))
        rows.append(
            "| " + " | ".join([*(_cell(cell) for cell in cells), _cell(meaning(model, name))]) + " |\n"
        )
    return (head if defaults else plain) + "".join(rows)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value == "" or isinstance(value, BaseModel):
        return ""
    return f"`{json.dumps(value, default=str)}`"


def meaning(model: type[BaseModel], name: str) -> str:
    """The string under the field, in the class that defines it last; empty where there is none."""
    for ancestor in model.__mro__:
        if issubclass(ancestor, BaseModel) and name in (texts := attribute_texts(ancestor)):
            return texts[name]
    return ""


@cache
def attribute_texts(owner: type) -> dict[str, str]:
    """Attribute name -> the string literal that stands right under it in the class body."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    body = ast.parse(source).body[0]
    found: dict[str, str] = {}
    if not isinstance(body, ast.ClassDef):
        return found
    for statement, follower in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(follower, ast.Expr)
            and isinstance(follower.value, ast.Constant)
            and isinstance(follower.value.value, str)
        ):
            found[statement.target.id] = inspect.cleandoc(follower.value.value)
    return found


PLAIN_NAMES: dict[object, str] = {
    type(None): "null",
    Any: "any",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    bytes: "bytes",
    Decimal: "decimal",
    datetime: "moment",
    Path: "path",
    object: "any",
}


def type_name(annotation: Any) -> str:
    """A type as a reader of JSON calls it; the same on every Python."""
    known: object = annotation
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inner[0])
    if origin is Literal:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in inner)
    if origin in {Union, UnionType}:
        return " | ".join(dict.fromkeys(type_name(part) for part in inner))
    if origin in {dict, Mapping}:
        return f"object of {type_name(inner[1])}"
    if origin in {tuple, list, set, frozenset, Sequence}:
        return f"list of {type_name(inner[0])}"
    if _is_enum(known):
        return " | ".join(f'"{member.value}"' for member in known)
    return PLAIN_NAMES.get(known) or getattr(known, "__name__", str(known))


def _is_enum(kind: object) -> TypeIs[type[StrEnum]]:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def summary(owner: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(owner) or "").split("\n\n")[0].split())
