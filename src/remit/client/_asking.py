"""What is asked of a host, and what may be asked again."""

from __future__ import annotations

import os
import random
import re
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2

from remit.contract import RunRequest
from remit.errors import ConfigError, InvalidRequest, MisuseError, NotFound, RemitError
from remit.primitives import (
    check_count,
    check_flag,
    check_length,
    check_text,
    clean_text,
    dump_json,
    is_run_id,
)

API: Final = "/api/v1"
MAX_TRIES: Final = 4
STREAM_SILENCE_S: Final = 45.0
"""Three missed signs of life: the stream is taken for dead, and resumed."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 8.0
_MAX_KEY_CHARS: Final = 255
_PRINTABLE: Final = re.compile("[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


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
    check_count("wait_ms", wait_ms)
    body = _body_of(request, fields)
    query: dict[str, Any] = {"wait_ms": wait_ms} if wait_ms else {}
    if dry_run:
        query["dry_run"] = "1"
    if idempotency_key is not None:
        _check_header("idempotency_key", idempotency_key, most_chars=_MAX_KEY_CHARS)
    key = f"sdk-{secrets.token_hex(16)}" if idempotency_key is None else idempotency_key
    return Ask(
        method="POST",
        path=f"{API}/runs",
        query=query,
        body=body,
        headers={"Idempotency-Key": key},
        waits_s=wait_ms / 1000,
    )


def _body_of(request: RunRequest | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked, as JSON; the host says what is wrong with its fields."""
    if request is not None and not isinstance(request, RunRequest | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a request is a RunRequest, or a mapping with its fields", param="request")
    if request is not None and fields:
        raise InvalidRequest("give a request, or its fields, not both", param="request")
    body = dict(fields if request is None else {} if isinstance(request, RunRequest) else request)
    if isinstance(request, RunRequest):
        body = request.model_dump(mode="json", exclude_unset=True)
    for name, value in body.items():
        try:
            dump_json({name: value})
        except (TypeError, ValueError, RecursionError):
            raise InvalidRequest(f"`{name}` holds something that JSON can't", param=str(name)) from None
    return body


def ask_cancel(run_id: str, *, reason: str | None, tombstone: bool, wait_ms: int) -> Ask:
    """Stop a run. A second one changes nothing, so it may be sent again."""
    if reason is not None and not isinstance(reason, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a reason is a text", param="reason")
    check_flag("tombstone", tombstone)
    check_count("wait_ms", wait_ms)
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


def input_body(text: str) -> dict[str, Any]:
    """A message for a run."""
    check_text("text", text)
    return {"text": text}


def deliver_body(*, unreviewed: bool, allow_protected: bool, branch: str | None) -> dict[str, Any]:
    """What is allowed of a delivery, and where it goes. A blank branch isn't none: that would be the tree."""
    check_flag("unreviewed", unreviewed)
    check_flag("allow_protected", allow_protected)
    if branch is not None:
        check_text("branch", branch)
    body = {"unreviewed": unreviewed, "allow_protected": allow_protected, "branch": branch}
    return {name: value for name, value in body.items() if value}


def ask_runs(query: Mapping[str, Any]) -> Ask:
    """A page of runs."""
    given = {name: value for name, value in query.items() if value is not None}
    for name, value in given.items():
        check_count(name, value, least=1) if name == "limit" else check_text(name, value)
    return Ask(method="GET", path=f"{API}/runs", query=given)


def run_path(run_id: str, *rest: str) -> str:
    """The path of a run.

    Raises:
        MisuseError: The id is no text.
        NotFound: No run can have that id.
    """
    if not isinstance(run_id, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a run's id is a text", param="run_id")
    if not is_run_id(run_id):
        shown = clean_text(run_id)[0][:128]
        raise NotFound(f"no run `{shown}`", run_id=shown)
    return "/".join([f"{API}/runs", quote(run_id, safe=""), *rest])


def work_path(work_id: str, *rest: str) -> str:
    """The path of a piece of work, whatever its id holds."""
    check_text("work_id", work_id)
    return "/".join([f"{API}/work", quote(work_id, safe=""), *rest])


def checked_url(base_url: str) -> str:
    """The address of a host, without what doesn't belong there.

    Raises:
        MisuseError: It is no text.
        InvalidRequest: It is no such address.
    """
    check_text("base_url", base_url)
    text = base_url if "://" in base_url else f"http://{base_url}"
    if not _is_address(text):
        shown = clean_text(base_url)[0]
        raise InvalidRequest(f"`{shown}` isn't a host's address: write http://HOST:PORT", param="host")
    return text.rstrip("/")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        httpx2.URL(text)
        is_known = parts.scheme in {"http", "https"} and parts.port != 0
    except (ValueError, httpx2.InvalidURL):  # such as a bracket that isn't closed, or a port beyond the last
        return False
    return is_known and bool(parts.hostname) and not parts.username and not parts.query and not parts.fragment


def checked_headers(api_key: str | None) -> dict[str, str]:
    """What every call carries.

    Raises:
        MisuseError: The key can't be one.
    """
    if api_key is None:
        return {}
    _check_header("api_key", api_key)
    return {"Authorization": f"Bearer {api_key}"}


def check_timeout(timeout_s: object) -> None:
    """How long one answer may take.

    Raises:
        MisuseError: It isn't a number above 0.
    """
    check_length("timeout_s", timeout_s)
    if not timeout_s:
        raise MisuseError("`timeout_s` is a number above 0", param="timeout_s")


def _check_header(name: str, value: object, *, most_chars: int | None = None) -> None:
    """What is sent as a header; the message never shows it, since it may be a key."""
    check_text(name, value, most_chars=most_chars)
    if not _PRINTABLE.fullmatch(str(value)):
        raise MisuseError(f"`{name}` holds characters that no header can", param=name)


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


def trust_for(url: str) -> ssl.SSLContext | bool:
    """Whose certificates are trusted: the machine's, or those of SSL_CERT_FILE, on loopback as anywhere.

    Proxies of the environment aren't for loopback, so there the client reads nothing of it by itself.

    Raises:
        ConfigError: SSL_CERT_FILE names no file of certificates.
    """
    if urlsplit(url).scheme != "https":
        return True
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # also what isn't a file of certificates
        named = os.environ.get("SSL_CERT_FILE")
        raise ConfigError(
            f"SSL_CERT_FILE: {named} holds no certificates that can be read ({error})"
        ) from None
