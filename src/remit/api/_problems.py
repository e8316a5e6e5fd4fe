"""Errors as the native API answers them: `application/problem+json`, the same keys always."""

from __future__ import annotations

import logging
import math
from typing import Any, Final, cast

from starlette.responses import Response

from remit.errors import InternalError, MisuseError, RemitError
from remit.primitives import clean_text, dump_json

MEDIA_TYPE: Final = "application/problem+json"
_TYPES: Final = "https://remit.dev/errors/"
_log = logging.getLogger(__name__)


def problem_json(error: RemitError, *, request_id: str) -> dict[str, Any]:
    """The body for an error. Of its fields only `param` is shown, and what the caller himself has named."""
    param = error.fields.get("param")
    return {
        "type": _TYPES + error.code,
        "title": _title(error),
        "status": error.status,
        "code": error.code,
        "detail": clean_text(error.message)[0],
        "param": clean_text(param)[0] if isinstance(param, str) else None,
        "retryable": error.retryable,
        "request_id": request_id,
    }


def problem(error: RemitError, *, request_id: str) -> Response:
    """The answer for an error, with the headers that belong to its status."""
    return Response(
        dump_json(problem_json(error, request_id=request_id)),
        status_code=error.status,
        media_type=MEDIA_TYPE,
        headers=_headers(error),
    )


def known_error(error: Exception) -> RemitError:
    """The error as one of ours; what nobody foresaw is logged, and shows nothing of itself."""
    while (
        isinstance(error, ExceptionGroup)
        and len(inner := cast("ExceptionGroup[Exception]", error).exceptions) == 1
    ):
        error = inner[0]
    if isinstance(error, RemitError) and not isinstance(error, InternalError | MisuseError):
        return error
    _log.error("a request failed by a fault of ours", exc_info=cast("Exception", error))
    return InternalError("a fault of ours; the host's log says more")


def _title(error: RemitError) -> str:
    """What all errors of this kind have in common: the first sentence of its class."""
    return (type(error).__doc__ or error.code).strip().splitlines()[0].rstrip(".").partition(";")[0]


def _headers(error: RemitError) -> dict[str, str]:
    headers: dict[str, str] = {}
    after_ms = error.fields.get("retry_after_ms")
    if isinstance(after_ms, int):
        headers["Retry-After"] = str(max(1, math.ceil(after_ms / 1000)))
    elif error.retryable and error.status in {429, 503}:
        headers["Retry-After"] = "5"
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="remit"'
    if error.status in {408, 413}:
        headers["Connection"] = "close"
    allow = error.fields.get("allow")
    if error.status == 405 and isinstance(allow, str):
        headers["Allow"] = allow
    return headers
