"""What makes two requests the same one."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from remit.contract import RunRequest
from remit.primitives import dump_json

_NOT_PART_OF_IT: Final = frozenset({"id", "webhook"})


def fingerprint(request: RunRequest) -> str:
    """SHA-256, in hex, of the request as it was asked: before any default, without its id and webhook.

    Canonical: key order, a field that is null, and spellings that validate to the same value (a delivery as a
    word or as an object) don't matter.
    """
    body = request.model_dump(mode="json", exclude_unset=True, exclude=set(_NOT_PART_OF_IT))
    body = {name: value for name, value in body.items() if value is not None}
    return sha256(dump_json(body, sort_keys=True).encode()).hexdigest()
