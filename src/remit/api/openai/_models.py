"""The models of both doors: the bindings that a key may use, in the form that the client understands."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import DoorAnswer, DoorCall, DoorOperation, binding_of
from remit.api.openai._errors import OPENAI

_CREATED: Final = 1_764_547_200
"""Of all models: a binding has no birthday. 2025-12-01."""
_CREATED_AT: Final = "2025-12-01T00:00:00Z"
_ANY: Final = frozenset({"run", "read"})


async def _list(call: DoorCall) -> DoorAnswer:
    names = sorted(name for name in call.host.bindings if call.identity.sees_binding(name))
    data = [_model(call, name) for name in names]
    if call.dialect is OPENAI:
        return call.answer({"object": "list", "data": data})
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return call.answer({"data": data, "has_more": False, **ends})


async def _read(call: DoorCall) -> DoorAnswer:
    return call.answer(_model(call, binding_of(call, call.path["id"]).name))


def _model(call: DoorCall, name: str) -> dict[str, Any]:
    if call.dialect is OPENAI:
        return {"id": name, "object": "model", "created": _CREATED, "owned_by": "remit"}
    return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_AT}


OPERATIONS: Final = (
    DoorOperation(id="list_models", method="GET", path="/v1/models", handle=_list, scopes=_ANY),
    DoorOperation(id="read_model", method="GET", path="/v1/models/{id:path}", handle=_read, scopes=_ANY),
)
