"""Errors in OpenAI's form: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import Fault

_TYPES: Final = {
    402: "insufficient_quota",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    499: "cancelled",
}
_CODES: Final = {
    "unauthenticated": "invalid_api_key",
    "quota_exceeded": "rate_limit_exceeded",
    "cap_spent": "insufficient_quota",
}


class OpenAIDialect:
    """OpenAI's form of things."""

    def error_json(self, fault: Fault, *, request_id: str) -> dict[str, Any]:
        """The body of an error answer."""
        return {"error": error_of(fault)}

    def headers(self, *, request_id: str) -> dict[str, str]:
        """Nothing beyond what the guard adds."""
        return {}


OPENAI: Final = OpenAIDialect()


def error_of(fault: Fault) -> dict[str, Any]:
    """The inner object of an error."""
    code = "model_not_found" if (fault.code, fault.param) == ("not_found", "model") else fault.code
    return {
        "message": fault.message,
        "type": _TYPES.get(fault.status, "server_error" if fault.status >= 500 else "invalid_request_error"),
        "param": fault.param,
        "code": _CODES.get(code, code),
    }
