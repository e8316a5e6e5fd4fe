"""What can go wrong between a node and its checkouts."""

from __future__ import annotations

from remit.errors import ConfigError, NodeError, RemitError

__all__ = ["KeeperLost", "SandboxUnavailable", "WorkspaceOperationError", "WorkspaceRefused"]


class SandboxUnavailable(ConfigError):
    """No sandbox can be had here, and none may be left out without being asked.

    `fields`: `reasons` (why each level isn't available), `fix` (the one command that changes it).
    """

    code = "sandbox_unavailable"


class WorkspaceRefused(ConfigError):
    """The folder can't be a workspace: a home folder, `/`, too large to copy, the data folder inside it."""

    code = "workspace_refused"


class KeeperLost(NodeError):
    """The process that holds the checkout is gone; what ran in it is gone with it."""

    code = "keeper_lost"


class WorkspaceOperationError(RemitError):
    """One operation in a checkout was refused or failed; the checkout goes on.

    `fields["status"]` is a tool status word (`denied not_found too_large invalid_arguments conflict failed
    cancelled`); more fields come from the operation itself.
    """

    code = "workspace_operation"
    status = 409

    @property
    def reason(self) -> str:
        """The tool status word."""
        return str(self.fields.get("status", "failed"))
