"""The audit record: who did what that an operator answers for. Append-only, per tenant, without secrets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from remit.contract._model import Model, Moment

AuditAction = Literal[
    "key.created",
    "key.revoked",
    "host.configured",
    "audit.trimmed",
    "admin.called",
    "run.override",
    "run.webhook",
    "result.answered",
    "delivery.approved",
    "delivery.discarded",
    "delivery.ended",
    "delivery.undone",
]
"""What was done: a key made or ended; a host that started with other settings than the last one;
old acts that were taken off the record; a call that
needs the scope `admin`; a run asked for with more than what any request may set, or with a webhook; a result
accepted or refused; a delivery approved, thrown away, carried out or taken back."""

AUDIT_KEPT_DAYS = 30
"""No act is taken off the record before."""

OWNER = "owner"
"""Whoever owns the machine: by the command line, or in this process."""


class AuditFact(Model):
    """One act, before it is stored."""

    actor: str = OWNER
    """The id of a key, or `owner`."""
    action: AuditAction
    subject: str
    """What it was done to, such as `run run_1` or `key key_1`."""
    origin: str | None = None
    """The address that it came from; None: not over the network."""
    outcome: str = "done"
    """`done`, a delivery's status, or the code of the error that it was refused with."""
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Names and words of the act; never a secret, never text of a request."""


class AuditEntry(AuditFact):
    """One act, as it is stored."""

    id: int
    """Rises with every act of the host's data folder."""
    at: Moment
    tenant: str
