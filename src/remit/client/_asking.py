"""What is asked of a host, and what may be asked again."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2

from remit.contract import RunRequest
from remit.errors import InvalidRequest, RemitError

API: Final = "/api/v1"
MAX_TRIES: Final = 4
STREAM_SILENCE_S: Final = 45.0
"""Three missed signs of life: the stream is taken for dead, and resumed."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    waits_s: float = 0.0
    """How long the host itself may take before it answers, beyond the usual."""
    once: bool = False
    """Whether it must not come twice: then it is sent again only where the host can't have got it."""


def ask_create(
    request: RunRequest | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    *,
    idempotency_key: str | None,
    wait_ms: int,
    dry_run: bool,
) -> Ask:
    """Start a run. It always carries a key, so that it may be sent again."""
    if request is not None and fields:
        raise InvalidRequest("give a request, or its fields, not both")
    body = dict(fields)
    if isinstance(request, RunRequest):
        body = request.model_dump(mode="json", exclude_unset=True)
    elif request is not None:
        body = dict(request)
    query: dict[str, Any] = {"wait_ms": wait_ms} if wait_ms else {}
    if dry_run:
        query["dry_run"] = "1"
    key = idempotency_key or f"sdk-{secrets.token_hex(16)}"
    return Ask(
        method="POST",
        path=f"{API}/runs",
        query=query,
        body=body,
        headers={"Idempotency-Key": key},
        waits_s=wait_ms / 1000,
    )


def ask_cancel(run_id: str, *, reason: str | None, tombstone: bool, wait_ms: int) -> Ask:
    """Stop a run. A second one changes nothing, so it may be sent again."""
    body: dict[str, Any] = {"reason": reason} if reason is not None else {}
    if tombstone:
        body["tombstone"] = True
    return Ask(
        method="POST",
        path=run_path(run_id, "cancel"),
        query={"wait_ms": wait_ms},
        body=body,
        waits_s=wait_ms / 1000,
    )


def ask_runs(query: Mapping[str, Any]) -> Ask:
    """A page of runs."""
    given = {name: value for name, value in query.items() if value is not None}
    return Ask(method="GET", path=f"{API}/runs", query=given)


def run_path(run_id: str, *rest: str) -> str:
    """The path of a run, whatever its id holds."""
    return "/".join([f"{API}/runs", quote(run_id, safe=""), *rest])


def work_path(work_id: str, *rest: str) -> str:
    """The path of a piece of work."""
    return "/".join([f"{API}/work", quote(work_id, safe=""), *rest])


def checked_url(base_url: str) -> str:
    """The address of a host, without what doesn't belong there.

    Raises:
        InvalidRequest: It is no such address.
    """
    text = base_url if "://" in base_url else f"http://{base_url}"
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise InvalidRequest(f"`{base_url}` isn't a host's address: write http://HOST:PORT", param="host")
    return text.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own: then no proxy of the environment has a part in it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def may_repeat(error: RemitError | httpx2.TransportError, *, once: bool = False) -> bool:
    """Whether the same call may be sent again after this.

    Every call of ours may be sent twice, but those that are `once`.
    """
    if isinstance(error, RemitError):
        return error.retryable and error.code not in {"session_busy", "host_unreachable"}
    return not once or isinstance(error, httpx2.ConnectError)


def wait_before(attempt: int, error: RemitError | httpx2.TransportError) -> float:
    """Seconds before the next try: what the host asks for, else more each time, with jitter."""
    asked = error.fields.get("retry_after_ms") if isinstance(error, RemitError) else None
    if isinstance(asked, int):
        return min(asked / 1000, 60.0)
    longest = min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing
