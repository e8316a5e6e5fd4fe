"""What a compatible door says when something goes wrong, before a dialect finds the words for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from remit.contract import RunView, Terminal, TerminalClass
from remit.errors import RemitError
from remit.primitives import clean_text

_BY_CLASS: Final[Mapping[TerminalClass, int]] = {
    "provider": 502,
    "budget": 504,
    "timeout": 504,
    "workspace": 503,
    "invalid_output": 502,
    "rejected": 422,
    "cancelled": 499,
    "internal": 500,
    "usage": 500,
    "lost": 500,
}
_BY_CODE: Final[Mapping[tuple[TerminalClass, str], int]] = {
    ("provider", "rate_limited"): 429,
    ("provider", "context_length"): 400,
    ("provider", "content_filter"): 400,
    ("workspace", "delivery_refused"): 409,
    ("workspace", "delivery_conflict"): 409,
}
_DEFAULT_AFTER_S: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error of a compatible door."""

    status: int
    code: str
    """Our error's code; of a run that ended otherwise than completed its `class/code`."""
    message: str
    param: str | None = None
    """The field that is to blame."""
    retryable: bool = False
    """Whether the same request may succeed later; if not, client libraries are told not to send it again."""
    retry_after_s: int | None = None
    run_id: str | None = None
    allow: str | None = None
    """The methods that the path takes, with 405."""

    def headers(self) -> dict[str, str]:
        """What goes into the answer's head."""
        headers = {"x-should-retry": "true" if self.retryable else "false"}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.run_id is not None:
            headers["X-Remit-Run-Id"] = self.run_id
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="remit"'
        if self.allow is not None:
            headers["Allow"] = self.allow
        if self.status in {408, 413}:
            headers["Connection"] = "close"
        return headers


def status_of(terminal: Terminal) -> int:
    """The HTTP status of a run that ended otherwise than completed."""
    if terminal.class_ is None or terminal.code is None:
        return 500
    return _BY_CODE.get((terminal.class_, terminal.code), _BY_CLASS[terminal.class_])


def fault_of_run(view: RunView) -> Fault:
    """Why a run has no answer. Its end is final: the same request again would be paid for again."""
    terminal = view.terminal
    if terminal is None:
        return Fault(
            status=503, code="unavailable", message="The host stops.", retryable=True, run_id=view.id
        )
    return Fault(
        status=status_of(terminal),
        code=f"{terminal.class_}/{terminal.code}",
        message=f"{terminal.message} (run {view.id})",
        run_id=view.id,
    )


def fault_of(error: RemitError) -> Fault:
    """An error of ours as the compatible doors put it: a field that is wrong is 400 there, not 422."""
    param, allow = error.fields.get("param"), error.fields.get("allow")
    after_ms, after_s = error.fields.get("retry_after_ms"), None
    if isinstance(after_ms, int):
        after_s = max(1, math.ceil(after_ms / 1000))
    elif error.retryable and error.status in {429, 503}:
        after_s = _DEFAULT_AFTER_S
    return Fault(
        status=400 if error.status == 422 else error.status,
        code=error.code,
        message=clean_text(error.message)[0],
        param=clean_text(param)[0] if isinstance(param, str) else None,
        retryable=error.retryable,
        retry_after_s=after_s,
        allow=allow if isinstance(allow, str) else None,
    )
