"""Remit runs a coding agent as a request: planned, sandboxed, reviewed, bounded, and accounted for.

Names are loaded when they are first used (PEP 562), so that ``import remit`` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.contract import (
        CancelReceipt,
        LimitRequest,
        Limits,
        RunRequest,
        RunStatus,
        RunView,
        Terminal,
        Usage,
    )
    from remit.errors import (
        AdmissionError,
        RemitError,
        RequestError,
        RunCancelled,
        RunFailed,
        RunIndeterminate,
    )
    from remit.host import CancelOutcome, Host, Run

__version__ = "0.1.0"

__all__ = [
    "AdmissionError",
    "CancelOutcome",
    "CancelReceipt",
    "Host",
    "LimitRequest",
    "Limits",
    "RemitError",
    "RequestError",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunIndeterminate",
    "RunRequest",
    "RunStatus",
    "RunView",
    "Terminal",
    "Usage",
    "__version__",
]

_HOMES = {
    "AdmissionError": "remit.errors",
    "CancelOutcome": "remit.host",
    "CancelReceipt": "remit.contract",
    "Host": "remit.host",
    "LimitRequest": "remit.contract",
    "Limits": "remit.contract",
    "RemitError": "remit.errors",
    "RequestError": "remit.errors",
    "Run": "remit.host",
    "RunCancelled": "remit.errors",
    "RunFailed": "remit.errors",
    "RunIndeterminate": "remit.errors",
    "RunRequest": "remit.contract",
    "RunStatus": "remit.contract",
    "RunView": "remit.contract",
    "Terminal": "remit.contract",
    "Usage": "remit.contract",
}
"""Public name -> the module that defines it."""


def __getattr__(name: str) -> Any:
    """Load a public name from its home, once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, also those not loaded yet."""
    return sorted({*globals(), *_HOMES})
