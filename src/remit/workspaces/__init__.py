"""Where the work is done: checkouts, sandboxes, tools on files and commands, receipts.

Names are loaded when they are first used (PEP 562): a keeper is started from this package and must import
nothing but the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.workspaces._checkout import (
        Checkout,
        CheckoutRequest,
        CommandResult,
        CommandSpec,
        Keeper,
        Stopped,
    )
    from remit.workspaces._failures import KeeperLost, SandboxUnavailable, WorkspaceOperationError
    from remit.workspaces._probe import Probe
    from remit.workspaces._settings import CommandDefinition, Mount, WorkspaceSettings
    from remit.workspaces._toolchains import Toolchains, find_toolchains

_HOMES = {
    "Checkout": "_checkout",
    "CheckoutRequest": "_checkout",
    "CommandDefinition": "_settings",
    "CommandResult": "_checkout",
    "CommandSpec": "_checkout",
    "Keeper": "_checkout",
    "KeeperLost": "_failures",
    "Mount": "_settings",
    "Probe": "_probe",
    "SandboxUnavailable": "_failures",
    "Stopped": "_checkout",
    "Toolchains": "_toolchains",
    "WorkspaceOperationError": "_failures",
    "WorkspaceSettings": "_settings",
    "find_toolchains": "_toolchains",
}

__all__ = [
    "Checkout",
    "CheckoutRequest",
    "CommandDefinition",
    "CommandResult",
    "CommandSpec",
    "Keeper",
    "KeeperLost",
    "Mount",
    "Probe",
    "SandboxUnavailable",
    "Stopped",
    "Toolchains",
    "WorkspaceOperationError",
    "WorkspaceSettings",
    "find_toolchains",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
