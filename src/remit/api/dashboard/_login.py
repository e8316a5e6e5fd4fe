"""Who looks at a page: a key in a cookie, and a token in each form that only our own pages can know."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from remit.api._keys import Identity, Keyring, origin_of
from remit.errors import Forbidden, InvalidRequest, PayloadTooLarge, Unauthenticated

COOKIE: Final = "remit_key"
_MOST_FORM_BYTES: Final = 64 * 1024
_KEPT_S: Final = 7 * 24 * 3600


class Visitors:
    """Knows a page's visitor by the key in the cookie. The API never takes a cookie."""

    def __init__(self, keyring: Keyring, *, scheme: str) -> None:
        self._keyring = keyring
        self._secure = scheme == "https"
        self._secret = secrets.token_bytes(32)

    async def identify(self, request: Request) -> Identity:
        """Who looks.

        Raises:
            Unauthenticated: There is no cookie, or its key is no longer good.
        """
        return await self.identify_key(request.cookies.get(COOKIE, ""), origin=origin_of(request.scope))

    async def identify_key(self, key: str, *, origin: str | None) -> Identity:
        """Who has this key. Raises `Unauthenticated`."""
        if not key.isascii():
            raise Unauthenticated("that isn't a key of this host")
        headers = {b"authorization": b"Bearer " + key.strip().encode("ascii")}
        return await self._keyring.identify(headers, origin=origin)

    async def still(self, identity: Identity) -> bool:
        """Whether a key that was good is good now."""
        return await self._keyring.still(identity)

    def welcome(self, response: Response, key: str) -> None:
        """Let the browser remember the key: out of reach of scripts, and never sent from another site."""
        response.set_cookie(
            COOKIE, key.strip(), max_age=_KEPT_S, httponly=True, samesite="strict", secure=self._secure
        )

    def forget(self, response: Response) -> None:
        """Let the browser forget it."""
        response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=self._secure)

    def token(self, identity: Identity | None) -> str:
        """What a form of ours carries; another site can't know it. Good until the host starts again."""
        who = b"login" if identity is None else identity.key_hash.encode("ascii")
        return hmac.new(self._secret, who, hashlib.sha256).hexdigest()

    def check_form(self, form: Mapping[str, str], identity: Identity | None) -> None:
        """Raise `Forbidden` where a form didn't come from a page of ours."""
        if not hmac.compare_digest(form.get("token", "").encode(), self.token(identity).encode()):
            raise Forbidden("this form is out of date: load the page again, and send it from there")


async def read_form(request: Request) -> dict[str, str]:
    """A posted form; of fields that stand twice, the last.

    Raises:
        PayloadTooLarge, InvalidRequest: It is too large, or no form.
    """
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > _MOST_FORM_BYTES:
            raise PayloadTooLarge(f"a form has at most {_MOST_FORM_BYTES} bytes", bound=_MOST_FORM_BYTES)
    try:
        pairs = parse_qsl(taken.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise InvalidRequest("that isn't a form") from None
    return dict(pairs)
