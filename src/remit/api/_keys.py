"""Keys at the door: how one is made, and who it says that a request comes from."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remit.admission import Caller
from remit.api._ports import ServedStore
from remit.contract import ApiKey, LimitRequest, Scope
from remit.errors import Forbidden, Unauthenticated
from remit.primitives import Clock

PREFIX: Final = "rk_"
_SECRET_BYTES: Final = 32
_SHAPE: Final = re.compile(rb"rk_[A-Za-z0-9_-]{43}\Z")
_REMEMBERED: Final = 1_000
_REMEMBERED_S: Final = 1.0


def new_secret() -> str:
    """A fresh key: `rk_` and 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """What is kept of a key. One round is enough: nobody guesses 256 random bits, however fast."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request comes from."""

    key: ApiKey
    key_hash: str
    origin: str | None = None
    """The address of the other end of its connection."""

    @property
    def tenant(self) -> str:
        """Whose things it sees."""
        return self.key.tenant

    @property
    def caller(self) -> Caller:
        """The same, as admission is told."""
        key = self.key
        return Caller(
            tenant=key.tenant,
            bindings=None if key.bindings is None else frozenset(key.bindings),
            limits=LimitRequest(max_cost_usd=key.max_cost_usd),
            key_id=key.id,
            origin=self.origin,
            max_running=key.max_running,
            max_queued=key.max_queued,
        )

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` where the key lacks a scope."""
        if scope not in self.key.scopes:
            raise Forbidden(f"this key lacks the scope `{scope}`", scope=scope)

    def sees_binding(self, name: str) -> bool:
        """Whether the key may use a binding."""
        return self.key.bindings is None or name in self.key.bindings


class Keyring:
    """Finds out who a key belongs to. What it has found it remembers for a second, and no longer."""

    def __init__(self, store: ServedStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()

    async def identify(self, headers: Mapping[bytes, bytes], *, origin: str | None) -> Identity:
        """The identity behind a request's headers, which came from this address.

        Raises:
            Unauthenticated: It has no key, or one that isn't known, has expired or was revoked.
        """
        secret = _secret_of(headers)
        return Identity(await self._get(hash_secret(secret)), hash_secret(secret), origin)

    async def still(self, identity: Identity) -> bool:
        """Whether a key that was good is good now."""
        try:
            await self._get(identity.key_hash)
        except Unauthenticated:
            return False
        return True

    async def _get(self, key_hash: str) -> ApiKey:
        key = await self._find(key_hash)
        if key is None or key.revoked_at is not None:
            raise Unauthenticated("this key isn't known here; `remit keys list` shows those that are")
        if key.expires_at is not None and key.expires_at <= self._clock.now():
            raise Unauthenticated("this key has expired; `remit keys create` makes another")
        return key

    async def _find(self, key_hash: str) -> ApiKey | None:
        now = self._clock.monotonic()
        known = self._known.get(key_hash)
        if known is not None and now - known[0] < _REMEMBERED_S:
            return known[1]
        key = await self._store.find_key(key_hash)
        self._known[key_hash] = (now, key)
        self._known.move_to_end(key_hash)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return key


def _secret_of(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"authorization")
    if given is None:
        raise Unauthenticated(
            "a key is needed: send `Authorization: Bearer rk_...` (the first one is in the data folder)"
        )
    scheme, _, secret = given.partition(b" ")
    secret = secret.strip()
    if scheme.lower() != b"bearer" or not _SHAPE.match(secret):
        raise Unauthenticated("send `Authorization: Bearer rk_...`, with a key of this host")
    return secret.decode("ascii")


def origin_of(scope: Mapping[str, Any]) -> str | None:
    """The address of the other end of a request's connection: a proxy's, where one is in between."""
    client = scope.get("client")
    return client[0] if client else None
