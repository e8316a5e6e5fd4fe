"""An event as text, and back: versioned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from remit import contract
from remit.errors import InternalError
from remit.events._catalog import PAYLOADS, TERMINAL_TYPES
from remit.events._event import Event, NewEvent
from remit.primitives import dump_json, load_json

CURRENT_VERSION: Final = 1

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
_UPCASTERS: Final[dict[tuple[str, int], Upcaster]] = {}
"""(type, version) -> what makes its data one version younger. Empty until the shapes change."""


def number_event(new: NewEvent, *, seq: int, run_id: str, session_id: str, at: datetime) -> Event:
    """The stored form of a new fact.

    Raises:
        InternalError: The payload isn't of the shape that the catalog has for this type.
    """
    shape = PAYLOADS.get(new.type)
    if shape is None or not isinstance(new.payload, shape):
        raise InternalError(f"{type(new.payload).__name__} is not the data of {new.type!r}")
    if new.type in TERMINAL_TYPES and isinstance(new.payload, contract.RunEnded):
        data = new.payload.run.to_json()
    else:
        data = new.payload.to_json()
    return Event(
        type=new.type,
        seq=seq,
        run_id=run_id,
        session_id=session_id,
        at=at,
        work_id=new.work_id,
        parent_work_id=new.parent_work_id,
        data=data,
    )


def encode_event(event: Event) -> str:
    """One line of JSON, as the stream shows it."""
    return dump_json(event.to_json())


def decode_event(text: str, *, version: int = CURRENT_VERSION) -> Event:
    """A stored event in its present shape.

    Raises:
        InternalError: It was written by a version that this one can't read.
    """
    body = load_json(text)
    body["data"] = upcast_data(body["type"], body["data"], version=version)
    return Event.model_validate(body)


def upcast_data(type_: str, data: dict[str, Any], *, version: int) -> dict[str, Any]:
    """An event's data in its present shape, for a store that keeps the envelope apart.

    Raises:
        InternalError: It was written by a version that this one can't read.
    """
    if version > CURRENT_VERSION:
        raise InternalError(f"an event of version {version}, this Remit reads up to {CURRENT_VERSION}")
    for step in range(version, CURRENT_VERSION):
        upcast = _UPCASTERS.get((type_, step))
        if upcast is not None:
            data = upcast(data)
    return data
