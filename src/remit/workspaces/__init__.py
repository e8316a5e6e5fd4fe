"""Where the work is done: checkouts, sandboxes, tools on files and commands, receipts.

Names are loaded when they are first used (PEP 562): a keeper is started from this package and must import
nothing but the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.workspaces._branching import BranchDelivery, Branches, BranchOrder, has_branches
    from remit.workspaces._checkout import Checkout
    from remit.workspaces._checkout_request import CheckoutRequest, Limits
    from remit.workspaces._checks import CheckDefinition
    from remit.workspaces._command import CommandResult, CommandSpec, Stopped
    from remit.workspaces._continuing import keeps_checkout
    from remit.workspaces._delivery import Deliveries, DeliveryOrder, Outcome, Recovered
    from remit.workspaces._failures import (
        KeeperLost,
        SandboxUnavailable,
        WorkspaceOperationError,
        WorkspaceRefused,
    )
    from remit.workspaces._finding_checks import find_checks
    from remit.workspaces._in_place_record import DiedInPlace, settle_died
    from remit.workspaces._keeper import Keeper
    from remit.workspaces._kept import KeepLimits
    from remit.workspaces._mcp_settings import McpServer, find_sdk, is_server_name
    from remit.workspaces._merging import Merged
    from remit.workspaces._network import describe_network
    from remit.workspaces._pinning import Bases, WorkspaceRoot, find_workspace_root
    from remit.workspaces._probe import Probe, SandboxWanted, choose_sandbox, sandbox_fix, sandbox_notes
    from remit.workspaces._receipts import Receipts
    from remit.workspaces._sandbox import check_root
    from remit.workspaces._secrets import read_secrets
    from remit.workspaces._service import NodeService
    from remit.workspaces._service_running import RunningCall
    from remit.workspaces._settings import DEFAULT_PROTECTED, CommandDefinition, Mount, WorkspaceSettings
    from remit.workspaces._setups_kept import SetupsKept, setups_kept
    from remit.workspaces._shelf import Toolchain, Toolchains
    from remit.workspaces._tool_schemas import DELEGATE, strict_parameters, tools_for
    from remit.workspaces._toolchains import find_toolchains
    from remit.workspaces._tools import ToolCall, ToolOutcome, ToolRunner, call_fingerprint

_HOMES = {
    "Bases": "_pinning",
    "BranchDelivery": "_branching",
    "BranchOrder": "_branching",
    "Branches": "_branching",
    "CheckDefinition": "_checks",
    "Checkout": "_checkout",
    "CheckoutRequest": "_checkout_request",
    "CommandDefinition": "_settings",
    "CommandResult": "_command",
    "CommandSpec": "_command",
    "DEFAULT_PROTECTED": "_settings",
    "DELEGATE": "_tool_schemas",
    "Deliveries": "_delivery",
    "DiedInPlace": "_in_place_record",
    "DeliveryOrder": "_delivery",
    "Keeper": "_keeper",
    "KeeperLost": "_failures",
    "Limits": "_checkout_request",
    "KeepLimits": "_kept",
    "McpServer": "_mcp_settings",
    "Mount": "_settings",
    "NodeService": "_service",
    "Outcome": "_delivery",
    "Probe": "_probe",
    "RunningCall": "_service_running",
    "Receipts": "_receipts",
    "Recovered": "_delivery",
    "SandboxUnavailable": "_failures",
    "SetupsKept": "_setups_kept",
    "Stopped": "_command",
    "ToolCall": "_tools",
    "ToolOutcome": "_tools",
    "ToolRunner": "_tools",
    "Toolchain": "_shelf",
    "Toolchains": "_shelf",
    "WorkspaceOperationError": "_failures",
    "WorkspaceRefused": "_failures",
    "WorkspaceRoot": "_pinning",
    "WorkspaceSettings": "_settings",
    "call_fingerprint": "_tools",
    "check_root": "_sandbox",
    "choose_sandbox": "_probe",
    "find_checks": "_finding_checks",
    "has_branches": "_branching",
    "Merged": "_merging",
    "keeps_checkout": "_continuing",
    "find_sdk": "_mcp_settings",
    "describe_network": "_network",
    "find_toolchains": "_toolchains",
    "read_secrets": "_secrets",
    "find_workspace_root": "_pinning",
    "is_server_name": "_mcp_settings",
    "SandboxWanted": "_probe",
    "sandbox_fix": "_probe",
    "sandbox_notes": "_probe",
    "settle_died": "_in_place_record",
    "setups_kept": "_setups_kept",
    "strict_parameters": "_tool_schemas",
    "tools_for": "_tool_schemas",
}

__all__ = [
    "DEFAULT_PROTECTED",
    "DELEGATE",
    "Bases",
    "BranchDelivery",
    "BranchOrder",
    "Branches",
    "CheckDefinition",
    "Checkout",
    "CheckoutRequest",
    "CommandDefinition",
    "CommandResult",
    "CommandSpec",
    "Deliveries",
    "DeliveryOrder",
    "DiedInPlace",
    "KeepLimits",
    "Keeper",
    "KeeperLost",
    "Limits",
    "McpServer",
    "Merged",
    "Mount",
    "NodeService",
    "Outcome",
    "Probe",
    "Receipts",
    "Recovered",
    "RunningCall",
    "SandboxUnavailable",
    "SandboxWanted",
    "SetupsKept",
    "Stopped",
    "ToolCall",
    "ToolOutcome",
    "ToolRunner",
    "Toolchain",
    "Toolchains",
    "WorkspaceOperationError",
    "WorkspaceRefused",
    "WorkspaceRoot",
    "WorkspaceSettings",
    "call_fingerprint",
    "check_root",
    "choose_sandbox",
    "describe_network",
    "find_checks",
    "find_sdk",
    "find_toolchains",
    "find_workspace_root",
    "has_branches",
    "is_server_name",
    "keeps_checkout",
    "read_secrets",
    "sandbox_fix",
    "sandbox_notes",
    "settle_died",
    "setups_kept",
    "strict_parameters",
    "tools_for",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
