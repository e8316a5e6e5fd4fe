"""From what a caller sent to a request that can be run: valid, bounded, storable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from remit.contract import ImagePart, RunRequest, TextPart, say_fault
from remit.errors import InvalidRequest, PayloadTooLarge
from remit.primitives import clean_text, dump_json
from remit.requests._bounds import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_METADATA_BYTES,
    MAX_METADATA_DEPTH,
    MAX_NAME_CHARS,
    MAX_OPTIONS_BYTES,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    MAX_TURNS,
    MAX_WEBHOOK_CHARS,
)

_LARGEST_EXACT: Final = 2**63 - 1
_INNER_NAMES: Final = frozenset({"TextPart", "ImagePart", "[key]"})
"""Words in the path of an error that name no key of the body."""
_INVISIBLE: Final = "\ufffd\ufeff\u200b\u200c\u200d\u2060"


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that may be admitted."""

    request: RunRequest
    text_replaced: int
    """Characters that can't be stored (NUL, lone surrogates) and became U+FFFD."""


def parse_request(body: Mapping[str, Any] | RunRequest) -> ParsedRequest:
    """Check a request and make its texts storable.

    Raises:
        InvalidRequest: A field is wrong, unknown or missing; `param` names it.
        PayloadTooLarge: A field is larger than its bound; `param` names it, `bound` says how large it may be.
    """
    replaced = _Cleaner()
    if isinstance(body, RunRequest):
        body = body.model_dump(mode="python", exclude_unset=True)
    cleaned = {key: replaced.clean(value, key) for key, value in body.items()}
    try:
        request = RunRequest.model_validate(cleaned)
    except ValidationError as error:
        raise _refusal(error) from None
    _check(request)
    return ParsedRequest(request, replaced.count)


class _Cleaner:
    """Replaces what no store can hold, in every text of a body, and refuses what isn't JSON."""

    def __init__(self) -> None:
        self.count = 0

    def clean(self, value: Any, where: str, depth: int = 0) -> Any:
        if depth > MAX_METADATA_DEPTH + 8:
            raise InvalidRequest(f"`{where}` nests too deeply", param=where)
        if isinstance(value, str):
            text, replaced = clean_text(value)
            self.count += replaced
            return text
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"`{where}` holds a number that isn't finite", param=where)
        if isinstance(value, Mapping):
            return self._clean_mapping(value, where, depth)  # pyright: ignore[reportUnknownArgumentType] - a caller's JSON
        if isinstance(value, list | tuple):
            return [self.clean(item, f"{where}.{index}", depth + 1) for index, item in enumerate(value)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - a caller's JSON
        return value

    def _clean_mapping(self, value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidRequest(f"`{where}` has a key that isn't text", param=where)
            name, replaced = clean_text(key)
            self.count += replaced
            cleaned[name] = self.clean(item, f"{where}.{name}", depth + 1)
        return cleaned


def _refusal(error: ValidationError) -> InvalidRequest:
    """The first thing that is wrong, in one sentence that names the field."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    # For a part of `content` each shape was tried: what the others miss says nothing about the one meant.
    wrong_shapes = {found["loc"][:-1] for found in errors if found["type"] == "literal_error"}
    first = next((found for found in errors if found["loc"][:-1] not in wrong_shapes), errors[0])
    param = ".".join(str(part) for part in first["loc"] if part not in _INNER_NAMES)
    if first["type"] == "extra_forbidden":
        message = f"`{param}` isn't a field of a request"
    elif param:
        message = f"`{param}`: {say_fault(first)}"
    else:
        message, param = say_fault(first), "prompt"
    return InvalidRequest(message, param=param)


# ---- bounds


def _check(request: RunRequest) -> None:
    _check_text(request)
    _check_images(request)
    _check_names(request)
    _check_json(request.metadata, "metadata", MAX_METADATA_BYTES)
    for kind, stage in request.stages.items():
        _check_json(stage.options, f"stages.{kind}.options", MAX_OPTIONS_BYTES)


def _check_text(request: RunRequest) -> None:
    param = "prompt" if request.prompt is not None else "content"
    parts = request.content or ()
    if len(parts) > MAX_PARTS:
        raise _too_large("content", f"{len(parts)} parts", MAX_PARTS, "parts")
    if len(request.earlier) > MAX_TURNS:
        raise _too_large("earlier", f"{len(request.earlier)} turns", MAX_TURNS, "turns")
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    texts += [text for text in (request.prompt, request.instructions) if text is not None]
    texts += [turn.text for turn in request.earlier]
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_TEXT_BYTES:
        raise _too_large(param, f"{size} bytes of text", MAX_TEXT_BYTES, "bytes")
    if not request.text().translate(dict.fromkeys(map(ord, _INVISIBLE))).strip():
        raise InvalidRequest(f"`{param}` holds no text: say what is to be done", param=param)


def _check_images(request: RunRequest) -> None:
    images = {
        f"content.{index}.url": part.url
        for index, part in enumerate(request.content or ())
        if isinstance(part, ImagePart)
    }
    for index, turn in enumerate(request.earlier):
        if turn.role == "assistant" and turn.images:
            raise InvalidRequest("a picture is the user's", param=f"earlier.{index}.images")
        images |= {f"earlier.{index}.images.{place}": url for place, url in enumerate(turn.images)}
    if len(images) > MAX_IMAGES:
        raise _too_large("content", f"{len(images)} pictures", MAX_IMAGES, "pictures")
    size = sum(map(len, images.values()))
    if size > MAX_IMAGE_BYTES:
        raise _too_large("content", f"{size} bytes of pictures", MAX_IMAGE_BYTES, "bytes")
    for param, url in images.items():
        if not url.startswith("data:image/"):
            raise InvalidRequest("a picture is given as a data URL", param=param)


def _check_names(request: RunRequest) -> None:
    names = {
        "binding": request.binding,
        "model": request.model,
        **{f"stages.{kind}.model": stage.model for kind, stage in request.stages.items()},
    }
    if request.workspace is not None:
        names |= {
            "workspace.ref": request.workspace.ref,
            "workspace.base": request.workspace.base,
            "workspace.subdir": request.workspace.subdir,
        }
    if request.delivery is not None:
        names["delivery.branch"] = request.delivery.branch
        if request.delivery.branch is not None and request.delivery.mode != "branch":
            raise InvalidRequest("`delivery.branch` goes with mode `branch` only", param="delivery.branch")
    for param, name in names.items():
        _check_name(param, name, longest=4_096 if param == "workspace.subdir" else MAX_NAME_CHARS)
    if request.webhook is not None:
        _check_name("webhook", request.webhook, longest=MAX_WEBHOOK_CHARS)
        if not request.webhook.startswith(("https://", "http://")):
            raise InvalidRequest("`webhook` must be an http or https address", param="webhook")


def _check_name(param: str, name: str | None, *, longest: int) -> None:
    if name is None:
        return
    if len(name) > longest:
        raise _too_large(param, f"{len(name)} characters", longest, "characters")
    if not name.strip() and param != "workspace.subdir":
        raise InvalidRequest(f"`{param}` is empty", param=param)
    if any(ord(character) < 32 for character in name):
        raise InvalidRequest(f"`{param}` holds a control character", param=param)


def _check_json(value: Mapping[str, Any], param: str, bound: int) -> None:
    _check_json_value(value, param, 1)
    try:
        size = len(dump_json(value).encode())
    except (TypeError, ValueError):
        raise InvalidRequest(f"`{param}` isn't JSON", param=param) from None
    if size > bound:
        raise _too_large(param, f"{size} bytes", bound, "bytes")


def _check_json_value(value: Any, param: str, depth: int) -> None:
    if isinstance(value, Mapping | list) and depth > MAX_METADATA_DEPTH:
        raise InvalidRequest(f"`{param}` nests deeper than {MAX_METADATA_DEPTH}", param=param)
    if isinstance(value, Mapping):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType] - a caller's JSON
            _check_json_value(item, f"{param}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - a caller's JSON
            _check_json_value(item, f"{param}.{index}", depth + 1)
    elif isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        raise InvalidRequest(f"`{param}` is an integer of more than 64 bits", param=param)
    elif not isinstance(value, str | int | float | None):
        raise InvalidRequest(f"`{param}` isn't JSON", param=param)


def _too_large(param: str, found: str, bound: int, unit: str) -> PayloadTooLarge:
    message = f"`{param}` has {found}; at most {bound} {unit} are taken"
    return PayloadTooLarge(message, param=param, bound=bound)
