"""What tells one compatible door from another: its words for errors."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.responses import Response

from remit.api.dialects._faults import Fault
from remit.primitives import dump_json


class Dialect(Protocol):
    """The form of a vendor's API."""

    def error_json(self, fault: Fault, *, request_id: str) -> dict[str, Any]:
        """The body of an error answer."""
        ...

    def headers(self, *, request_id: str) -> dict[str, str]:
        """What every answer has in its head."""
        ...


def refusal(dialect: Dialect, fault: Fault, *, request_id: str) -> Response:
    """An error answer."""
    return Response(
        dump_json(dialect.error_json(fault, request_id=request_id)),
        status_code=fault.status,
        media_type="application/json",
        headers={**dialect.headers(request_id=request_id), **fault.headers()},
    )
