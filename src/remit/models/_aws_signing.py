"""Signs requests to AWS with the credentials of an account: Signature Version 4, over headers and body.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html (seen 2026-11-30).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from remit.models._settings import AwsCredentials

__all__ = ["sign"]

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


def sign(
    credentials: AwsCredentials,
    *,
    method: str,
    host: str,
    path: str,
    query: str = "",
    headers: Mapping[str, str],
    body: bytes,
    region: str,
    service: str,
    now: datetime,
) -> dict[str, str]:
    """The headers that sign a request, beside those given.

    Args:
        credentials: Who signs.
        method: In capitals.
        host: As the `Host` header will say it, with its port where that isn't the scheme's own.
        path: As it goes out, percent-encoded once.
        query: As it goes out, in the order of its names; empty: none.
        headers: Others that the signature shall cover; names in lower case.
        body: As it goes out.
        region: Such as `us-east-1`.
        service: Such as `bedrock`.
        now: Aware; requests are refused some minutes after it.
    """
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if credentials.session_token is not None:
        added["x-amz-security-token"] = credentials.session_token.reveal()
    covered = {**headers, **added, "host": host}
    names = ";".join(sorted(covered))
    canonical = "\n".join(
        (
            method,
            quote(path, safe="/" + _UNRESERVED),  # every service but S3 wants it encoded once more
            query,
            *(f"{name}:{' '.join(covered[name].split())}" for name in sorted(covered)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = ("AWS4" + credentials.secret_access_key.reveal()).encode()
    for part in scope.split("/"):
        key = _mac(key, part)
    signature = _mac(key, to_sign).hex()
    who = f"Credential={credentials.access_key_id}/{scope}"
    added["authorization"] = f"{_ALGORITHM} {who}, SignedHeaders={names}, Signature={signature}"
    return added


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
