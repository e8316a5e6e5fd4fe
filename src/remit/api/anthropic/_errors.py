"""Errors in Anthropic's form: `{"type": "error", "error": {type, message}}`."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import Fault

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicDialect:
    """Anthropic's form of things."""

    def error_json(self, fault: Fault, *, request_id: str) -> dict[str, Any]:
        """The body of an error answer."""
        return {"type": "error", "error": error_of(fault), "request_id": request_id}

    def headers(self, *, request_id: str) -> dict[str, str]:
        """The request's id, where the vendor's libraries look for it."""
        return {"request-id": request_id}


ANTHROPIC: Final = AnthropicDialect()


def error_of(fault: Fault) -> dict[str, Any]:
    """The inner object of an error; `code` is ours, and passed over by who doesn't know it."""
    type_ = _TYPES.get(fault.status, "api_error" if fault.status >= 500 else "invalid_request_error")
    return {"type": type_, "message": fault.message, "code": fault.code, "param": fault.param}
