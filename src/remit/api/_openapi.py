"""The description of the API, made from its table of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import remit
from remit.api._operation import NoQuery, Operation, Says
from remit.api._shapes import Problem
from remit.contract import Model
from remit.events import Event

_REF: Final = "#/components/schemas/{model}"
_ALWAYS: Final = {
    400: "It can't be read: `malformed_request`.",
    404: "Nothing of that name exists for this caller: `not_found`.",
    408: "The body didn't come in time: `too_slow`.",
    413: "It is too large: `payload_too_large`.",
    421: "The Host header names another host: `unknown_host`.",
    422: "A field or parameter is wrong; `param` names it: `invalid_request`.",
    500: "A fault of the host's: `internal`.",
    503: "The store can't keep it, or the host takes none: `storage`, `draining`, `queue_full`.",
}
_WITH_KEY: Final = {
    401: "No key, or none that counts: `unauthenticated`.",
    403: "The key, or the page that it comes from, doesn't allow it: `forbidden`.",
}
_ACTING: Final = {415: "The body isn't JSON: `unsupported_media`."}
_NAME: Final = re.compile(r"\{(\w+)(?::path)?\}")
_Mode = Literal["validation", "serialization"]


def openapi_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    schemas, refs = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _NAME.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Remit",
            "version": remit.__version__,
            "description": "Runs a coding agent as a request. Errors are `application/problem+json`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "`rk_...`"}},
        },
    }


_Refs = dict[tuple[type[BaseModel], _Mode], dict[str, Any]]


def _schemas(operations: Iterable[Operation]) -> tuple[dict[str, Any], _Refs]:
    wanted: list[tuple[type[BaseModel], _Mode]] = [(Problem, "serialization"), (Event, "serialization")]
    for operation in operations:
        if operation.body is not None:
            wanted.append((operation.body, "validation"))
        if operation.query is not NoQuery:
            wanted.append((operation.query, "validation"))
        shapes = [shape for says in operation.says.values() for shape in (says.shape, says.other)]
        wanted.extend((shape, "serialization") for shape in shapes if shape is not None)
    found, document = models_json_schema(list(dict.fromkeys(wanted)), ref_template=_REF)
    schemas: dict[str, dict[str, Any]] = document.get("$defs", {})
    for name, schema in schemas.items():
        if "title" in schema:  # generators name a class by it: what is taken and what is told are two
            schema["title"] = name.replace("-", "")
    refs: _Refs = {(shape, mode): found[shape, mode] for shape, mode in wanted}
    return schemas, refs


def _operation(operation: Operation, refs: _Refs) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": {str(status): _says(says, refs) for status, says in operation.says.items()},
        "security": [] if operation.scope is None else [{"key": []}],
    }
    if operation.scope is not None:
        described["description"] = f"Scope: `{operation.scope}`."
    if operation.errors:
        codes = ", ".join(f"`{code}`" for code in operation.errors)
        described["description"] = f"{described.get('description', '')} Errors of its own: {codes}.".strip()
    if operation.body is not None:
        schema = refs[operation.body, "validation"]
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": schema}},
        }
    for status, text in _refusals(operation).items():
        described["responses"].setdefault(str(status), _problem(text, refs))
    return described


def _refusals(operation: Operation) -> dict[int, str]:
    refusals = dict(_ALWAYS)
    if operation.scope is not None:
        refusals |= _WITH_KEY
    if operation.method != "GET":
        refusals |= _ACTING
        refusals.setdefault(403, _WITH_KEY[403])
    if operation.errors:
        refusals[409] = "It contradicts what is there."
        refusals[429] = "The caller's own share is used up: `quota_exceeded`."
    return refusals


def _says(says: Says, refs: _Refs) -> dict[str, Any]:
    if says.shape is not None:
        schema = refs[says.shape, "serialization"]
        if says.other is not None:
            schema = {"anyOf": [schema, refs[says.other, "serialization"]]}
        content: dict[str, Any] = {says.media_type: {"schema": schema}}
        if says.shape.__name__ == "EventPage":
            content["text/event-stream"] = {"schema": {"type": "string"}}
        return {"description": says.text, "content": content}
    if not says.media_type:
        return {"description": says.text}
    types = (says.media_type, *says.further_types)
    return {"description": says.text, "content": {one: {"schema": _text_of(one, says)} for one in types}}


def _text_of(media_type: str, says: Says) -> dict[str, Any]:
    """What is known of a text without a shape."""
    if media_type != "application/json":
        return {"type": "string"}
    return {"type": "object"} if media_type == says.media_type else {"description": "Any JSON."}


def _problem(text: str, refs: _Refs) -> dict[str, Any]:
    schema = refs[Problem, "serialization"]
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(operation.path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    shape: type[Model] = operation.query
    properties: dict[str, Any] = shape.model_json_schema(ref_template=_REF).get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in properties.items()
    ]


def _headers(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in operation.headers.items()
    ]
