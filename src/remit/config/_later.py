"""Settings that the contract has and this version can't do yet: refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from remit.errors import ConfigError
from remit.workspaces import WorkspaceSettings


def refuse_later_workspace(workspace: WorkspaceSettings, where: str) -> None:
    """Refuse a workspace that asks for what isn't there yet.

    Raises:
        ConfigError: The message names the key.
    """
    for key in _later_keys(workspace):
        raise ConfigError(f"{where}.{key}: this version can't do that yet; remove the setting", param=key)


def _later_keys(workspace: WorkspaceSettings) -> Iterator[str]:
    if workspace.setup:
        yield "setup"
    if workspace.isolation == "in_place":
        yield "isolation"
    if workspace.sandbox == "landlock":
        yield "sandbox"
