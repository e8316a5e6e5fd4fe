"""From what a client wishes to a run that it waits for: the same admission as at every other door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, cast

from remit.admission import Binding
from remit.api._reading import read_idempotency_key
from remit.api.dialects._calls import DoorCall
from remit.contract import RunView
from remit.errors import InvalidRequest, NotFound
from remit.primitives import clean_text, is_run_id
from remit.requests import parse_request

DOOR_KEY: Final = "remit"
"""The key of a run's metadata under which a door keeps what it must know later."""
_MAX_SHOWN_CHARS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client asks for."""

    model: str
    """A binding's public name."""
    fields: Mapping[str, Any]
    """Text, pictures, earlier turns and instructions, as fields of a run's request."""
    brings_tools: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the door must know of the run later."""
    session_id: str | None = None
    """The session that the request names."""
    background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """A run that a call waits for."""

    run: RunView
    binding: Binding
    joined: bool
    """It was started by an earlier call."""

    @property
    def headers(self) -> dict[str, str]:
        """What the answer's head says of it."""
        named = {"X-Remit-Run-Id": self.run.id}
        return {**named, "X-Remit-Joined": "true"} if self.joined else named


def binding_of(call: DoorCall, model: str) -> Binding:
    """The binding that a client means by `model`.

    Raises:
        NotFound: There is none, or the key may not use it: nobody learns which.
    """
    binding = call.host.bindings.get(model) if call.identity.sees_binding(model) else None
    if binding is None:
        shown = clean_text(model)[0][:_MAX_SHOWN_CHARS]
        raise NotFound(
            f"there is no model `{shown}` here: a model is a binding's name, see GET /v1/models",
            param="model",
        )
    return binding


def former_binding(run: RunView) -> Binding:
    """What stands in for a run's binding that isn't configured any more: the run can still be told."""
    return Binding(name=run.binding, profile=run.profile, client_tools="ignore")


async def _find_binding(call: DoorCall, model: str) -> Binding:
    """The binding that is meant; one that is gone, where this very call may have started a run of it."""
    try:
        return binding_of(call, model)
    except NotFound:
        key, stored = read_idempotency_key(call.headers), None
        if key is not None:
            stored = await call.host.store.find_by_key(key, tenant=call.tenant)
        elif call.is_retry:
            stored = await call.foreground.find_joinable(call.ask, tenant=call.tenant)
        if stored is None or stored.view.binding != model or not call.identity.sees_binding(model):
            raise
        return former_binding(stored.view)


async def start_run(call: DoorCall, wish: Wish) -> Attended:
    """Start the run that a client wishes for, or join the one that the same call had started.

    Raises:
        RequestError: The wish must be changed; nothing was stored.
        AdmissionError: Not now; nothing was stored.
    """
    binding = await _find_binding(call, wish.model)
    if wish.brings_tools and binding.client_tools == "refuse":
        raise InvalidRequest(
            f"`tools`: runs of `{wish.model}` take none of a client's tools; leave them out, or set "
            '`client_tools = "ignore"` on the binding',
            param="tools",
        )
    parsed = parse_request(_request_of(call, wish, binding))
    if call.is_retry and not wish.background:
        joinable = await call.foreground.find_joinable(call.ask, tenant=call.tenant)
        if joinable is not None:
            return Attended(run=joinable.view, binding=binding, joined=True)
    started = await call.host.start(
        parsed,
        caller=replace(call.identity.caller, ask=call.ask),
        idempotency_key=read_idempotency_key(call.headers),
    )
    call.foreground.remember(call.ask, started.run.view.id)
    return Attended(run=started.run.view, binding=binding, joined=not started.created)


def _request_of(call: DoorCall, wish: Wish, binding: Binding) -> dict[str, Any]:
    request: dict[str, Any] = {"binding": wish.model, **wish.fields}
    # A plain answer is told the whole conversation by its client, and waits for no other run of the chat.
    front = None if binding.profile == "answer" else call.front_session
    session = wish.session_id or front
    if session is not None:
        request |= {"session_id": as_session_id(session), "on_busy": "enqueue"}
    metadata = {key: value for key, value in wish.metadata.items() if key != DOOR_KEY}
    if wish.facts:
        metadata[DOOR_KEY] = dict(wish.facts)
    if metadata:
        request["metadata"] = metadata
    return request


def as_session_id(name: str) -> str:
    """A client's name for a conversation as a session's id; one that can't be one becomes its hash."""
    if is_run_id(name):
        return name
    return "s_" + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def client_metadata(run: RunView) -> dict[str, Any]:
    """A run's metadata as its client gave it."""
    return {key: value for key, value in run.metadata.items() if key != DOOR_KEY}


def door_facts(run: RunView) -> Mapping[str, Any]:
    """What the door kept of a run's request."""
    facts = run.metadata.get(DOOR_KEY)
    return cast("Mapping[str, Any]", facts) if isinstance(facts, dict) else {}
