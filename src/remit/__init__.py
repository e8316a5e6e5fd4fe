"""Remit runs a coding agent as a request: planned, sandboxed, reviewed, bounded, and accounted for.

Names are loaded when they are first used (PEP 562), so that ``import remit`` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.client import AsyncClient, Client
    from remit.config import Config, load_config
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
        ConfigError,
        Draining,
        IdempotencyConflict,
        InvalidRequest,
        MisuseError,
        NotFound,
        RemitError,
        RequestError,
        RunCancelled,
        RunError,
        RunExpired,
        RunFailed,
        RunIndeterminate,
    )
    from remit.events import Event
    from remit.host import CancelOutcome, Host, HostStatus, Run
    from remit.runs import (
        HostedInput,
        IndeterminateRun,
        ModelTarget,
        Scope,
        SessionSpec,
        SettledRun,
        Tombstone,
    )
    from remit.sync import SyncHost, SyncRun, SyncScope

__version__ = "0.1.0"

__all__ = [
    "AdmissionError",
    "AsyncClient",
    "CancelOutcome",
    "CancelReceipt",
    "Client",
    "Config",
    "ConfigError",
    "Draining",
    "Event",
    "Host",
    "HostStatus",
    "HostedInput",
    "IdempotencyConflict",
    "IndeterminateRun",
    "InvalidRequest",
    "LimitRequest",
    "Limits",
    "MisuseError",
    "ModelTarget",
    "NotFound",
    "RemitError",
    "RequestError",
    "Run",
    "RunCancelled",
    "RunError",
    "RunExpired",
    "RunFailed",
    "RunIndeterminate",
    "RunRequest",
    "RunStatus",
    "RunView",
    "Scope",
    "SessionSpec",
    "SettledRun",
    "SyncHost",
    "SyncRun",
    "SyncScope",
    "Terminal",
    "Tombstone",
    "Usage",
    "__version__",
    "load_config",
]

_HOMES = {
    "AdmissionError": "remit.errors",
    "AsyncClient": "remit.client",
    "Client": "remit.client",
    "CancelOutcome": "remit.host",
    "CancelReceipt": "remit.contract",
    "Config": "remit.config",
    "ConfigError": "remit.errors",
    "Draining": "remit.errors",
    "Event": "remit.events",
    "Host": "remit.host",
    "HostStatus": "remit.host",
    "HostedInput": "remit.runs",
    "IdempotencyConflict": "remit.errors",
    "IndeterminateRun": "remit.runs",
    "InvalidRequest": "remit.errors",
    "LimitRequest": "remit.contract",
    "Limits": "remit.contract",
    "MisuseError": "remit.errors",
    "ModelTarget": "remit.runs",
    "NotFound": "remit.errors",
    "RemitError": "remit.errors",
    "RequestError": "remit.errors",
    "Run": "remit.host",
    "RunCancelled": "remit.errors",
    "RunError": "remit.errors",
    "RunExpired": "remit.errors",
    "RunFailed": "remit.errors",
    "RunIndeterminate": "remit.errors",
    "RunRequest": "remit.contract",
    "RunStatus": "remit.contract",
    "RunView": "remit.contract",
    "Scope": "remit.runs",
    "SessionSpec": "remit.runs",
    "SettledRun": "remit.runs",
    "SyncHost": "remit.sync",
    "SyncRun": "remit.sync",
    "SyncScope": "remit.sync",
    "Terminal": "remit.contract",
    "Tombstone": "remit.runs",
    "Usage": "remit.contract",
    "load_config": "remit.config",
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
