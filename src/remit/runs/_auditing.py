"""What of runs goes on the audit record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from remit.admission import DEFAULT_OVERRIDES, Admitted, Caller
from remit.contract import (
    AUDIT_KEPT_DAYS,
    OWNER,
    AuditAction,
    AuditFact,
    DeliveryCompleted,
    Model,
    RunRequest,
)
from remit.errors import MisuseError

_BY_HAND: Final[Mapping[str, tuple[AuditAction, str]]] = {
    "delivery.completed": ("delivery.ended", "delivered"),
    "delivery.conflict": ("delivery.ended", "conflict"),
    "delivery.discarded": ("delivery.discarded", "done"),
    "delivery.undone": ("delivery.undone", "done"),
}
"""What the host log says of a patch -> the act, and its outcome."""
_TOLD: Final = ("mode", "ref", "paths", "unreviewed", "allow_protected", "merged")


def audit_of_admission(admitted: Admitted, caller: Caller) -> tuple[AuditFact, ...]:
    """The acts that lie in a request: what it asks for beyond what anybody may, and whom it has told."""
    request, subject = admitted.request, f"run {admitted.run.id}"
    acts: list[AuditFact] = []
    beyond = sorted(admitted.overrides - {*DEFAULT_OVERRIDES})
    models = sorted(_models_of(request))
    if beyond or models:
        data = {"binding": admitted.binding.name, "overrides": beyond, "models": models}
        acts.append(act_of(caller, "run.override", subject, data=data))
    if request.webhook is not None:
        host = urlsplit(request.webhook).hostname
        acts.append(act_of(caller, "run.webhook", subject, data={"host": host}))
    return tuple(acts)


def act_of(
    caller: Caller,
    action: AuditAction,
    subject: str,
    *,
    outcome: str = "done",
    data: Mapping[str, Any] | None = None,
) -> AuditFact:
    """What a caller did."""
    return AuditFact(
        actor=caller.key_id or OWNER,
        action=action,
        subject=subject,
        origin=caller.origin,
        outcome=outcome,
        data=dict(data or {}),
    )


def _models_of(request: RunRequest) -> set[str]:
    named = {request.model, *(stage.model for stage in request.stages.values())}
    return {model for model in named if model is not None}


def check_trim(before: datetime, *, now: datetime) -> None:
    """Refuse to take acts off the record that are too new.

    Raises:
        MisuseError: The moment is less than thirty days back.
    """
    if before > now - timedelta(days=AUDIT_KEPT_DAYS):
        raise MisuseError(f"what is on the audit record stays there for {AUDIT_KEPT_DAYS} days at least")


def audit_of_event(run_id: str, payload: Model, *, key_id: str | None) -> AuditFact | None:
    """The act that an event of a run is: a delivery that left the host's own store; None for all others."""
    if not isinstance(payload, DeliveryCompleted) or payload.delivery.mode == "patch":
        return None
    delivery = payload.delivery
    return AuditFact(
        actor=key_id or OWNER,
        action="delivery.ended",
        subject=f"run {run_id}",
        outcome=delivery.status,
        data={"mode": delivery.mode, "ref": delivery.ref, "paths": len(payload.paths)},
    )


def audit_of_log(run_id: str, type_: str, data: Mapping[str, Any]) -> AuditFact | None:
    """The act that a line of a run's host log tells of: what was done to its patch by hand."""
    if type_ not in _BY_HAND:
        return None
    action, outcome = _BY_HAND[type_]
    by, origin = data.get("by"), data.get("origin")
    return AuditFact(
        actor=by if isinstance(by, str) and by != "hand" else OWNER,
        action=action,
        subject=f"run {run_id}",
        origin=origin if isinstance(origin, str) else None,
        outcome=outcome,
        data={name: data[name] for name in _TOLD if name in data},
    )
