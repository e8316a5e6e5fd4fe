"""An account of AWS as the fake provider knows it: checks a signature from what came over the wire alone.

Written apart from what signs in `remit.models`, so that a fault in one doesn't hide in the other.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

from remit.testing.fake_provider._reply import RecordedRequest

__all__ = ["FakeAccount"]

_AUTHORITY = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<day>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z-]+)"
    r"/aws4_request, "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})\Z"
)
_SKEW_S = 300
_MUST_BE_SIGNED = {"host", "x-amz-date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeAccount:
    """Its credentials, and where they count."""

    access_key_id: str = "AKIAFAKE0123456789AB"
    secret_access_key: str = "fake/secret+key/of+an/account0123456789a"  # noqa: S105 - of nobody
    session_token: str | None = None
    region: str = "us-east-1"
    service: str = "bedrock"
    now: datetime | None = None
    """None: the real time."""

    def fault(self, request: RecordedRequest) -> str | None:
        """Why the request isn't from this account, or None."""
        said = _AUTHORITY.match(request.headers.get("authorization", ""))
        if said is None:
            return "Missing Authentication Token"
        names = said["names"].split(";")
        if names != sorted(names) or _MUST_BE_SIGNED - set(names):
            return "'host' and 'x-amz-date' must be signed headers, in order."
        if (
            said["id"] != self.access_key_id
            or request.headers.get("x-amz-security-token") != self.session_token
        ):
            return "The security token included in the request is invalid."
        if self.session_token is not None and "x-amz-security-token" not in names:
            return "'x-amz-security-token' must be a signed header."
        if (said["region"], said["service"]) != (self.region, self.service):
            return f"Credential should be scoped to {self.region} and {self.service}."
        moment = request.headers["x-amz-date"]
        if moment[:8] != said["day"] or self._is_stale(moment):
            return "Signature expired."
        expected = self._signature(request, names, moment)
        if not hmac.compare_digest(expected, said["signature"]):
            return "The request signature we calculated does not match the signature you provided."
        return None

    def _is_stale(self, moment: str) -> bool:
        at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return abs((at - (self.now or datetime.now(UTC))).total_seconds()) > _SKEW_S

    def _signature(self, request: RecordedRequest, names: list[str], moment: str) -> str:
        path, _, query = request.path.partition("?")
        text = "".join(_lines(request, names, path, query)) + sha256(request.body).hexdigest()
        scope = f"{moment[:8]}/{self.region}/{self.service}/aws4_request"
        key = b"AWS4" + self.secret_access_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        digest = sha256(text.encode()).hexdigest()
        return hmac.digest(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}".encode(), "sha256").hex()


def _lines(request: RecordedRequest, names: list[str], path: str, query: str) -> Iterator[str]:
    yield f"{request.method}\n{quote(path, safe='/-_.~')}\n{query}\n"
    for name in names:
        yield f"{name}:{request.headers.get(name, '').strip()}\n"
    yield f"\n{';'.join(names)}\n"
