"""Keys: who may reach a host, for whom, and what they may do there. The key itself is never kept."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from pydantic import Field, field_validator

from remit.contract._model import Model, Moment, Money

Scope = Literal["run", "read", "admin", "node"]
"""What a key may do: `run` starts and steers runs, `read` looks, `admin` sees all, `node` joins a node."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z")


class ApiKey(Model):
    """A key as it is kept: everything but the secret."""

    id: str
    name: str
    """The operator's own word for it; unique among the living keys of a tenant."""
    tenant: str = "local"
    """Whose runs it starts and sees; no key sees those of another."""
    scopes: tuple[Scope, ...]
    bindings: tuple[str, ...] | None = None
    """The bindings that it may use; None: all."""
    max_cost_usd: Money | None = None
    """USD that all its runs together may cost at most; None: no bound of its own."""
    max_running: int | None = Field(default=None, ge=1)
    """Its runs that go on at once; more of them wait. None: no bound of its own."""
    max_queued: int | None = Field(default=None, ge=0)
    """Its runs that wait for a place; one more is refused. None: no bound of its own."""
    created_at: Moment
    expires_at: Moment | None = None
    """None: never."""
    revoked_at: Moment | None = None
    """None: it lives."""

    @field_validator("tenant")
    @classmethod
    def _check_tenant(cls, value: str) -> str:
        if not _TENANT.match(value):
            raise ValueError("a tenant is 1 to 63 of a-z 0-9 _ -, the first a letter or digit")
        return value

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _NAME.match(value):
            raise ValueError("a name is 1 to 63 of A-Z a-z 0-9 _ . @ -, the first a letter or digit")
        return value

    @field_validator("scopes")
    @classmethod
    def _check_scopes(cls, value: tuple[Scope, ...]) -> tuple[Scope, ...]:
        if not value:
            raise ValueError("a key needs a scope")
        return tuple(scope for scope in SCOPES if scope in value)


class KeySpending(Model):
    """What the runs of a key have cost, against what they may."""

    name: str
    max_cost_usd: Money | None = None
    """None: no bound of its own."""
    spent_micros: int = 0
    """Micro-USD; what isn't known, or is in flight, counts at its worst."""
