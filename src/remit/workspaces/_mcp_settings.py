"""What an MCP server is, as configuration states it: one `[mcp.servers.NAME]` table."""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from remit.contract import Model

__all__ = ["McpServer", "find_sdk", "is_server_name"]

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,23}\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def is_server_name(name: str) -> bool:
    """Whether a server may have this name: it becomes a part of its tools' names, `mcp__NAME__TOOL`."""
    return _NAME.match(name) is not None and not name.endswith("_")


def find_sdk() -> bool:
    """Whether what MCP servers need is installed; it comes with the extra `mcp`."""
    return importlib.util.find_spec("mcp") is not None


class McpServer(Model):
    """A program that offers tools over its standard streams."""

    command: str
    """The program: a name that is looked up in the sandbox's PATH, or a path."""
    args: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict[str, str])
    """Variables that it gets, with their values; secrets are named in `environment_allowlist` instead."""
    environment_allowlist: tuple[str, ...] = ()
    """Variables of the node's own environment that it gets."""
    network: bool = False
    """Whether it reaches the machine's network though the workspace's commands don't."""
    sandbox: bool = True
    """False: it runs outside the run's sandbox, with all that the node's user may do."""
    start_timeout_ms: Annotated[int, Field(gt=0, le=600_000, strict=True)] = 30_000
    """How long it may take from its start until it has said what it offers."""

    @field_validator("command")
    @classmethod
    def _command(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise ValueError("names no program")
        return value

    @model_validator(mode="after")
    def _place(self) -> Self:
        if not self.sandbox and "/" in self.command and not self.command.startswith("/"):
            raise ValueError("outside the sandbox `command` is a name or an absolute path")
        return self

    @field_validator("args")
    @classmethod
    def _args(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in argument for argument in value):
            raise ValueError("an argument can't hold a NUL character")
        return value

    @field_validator("environment")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.match(name):
                raise ValueError(f"{name!r} isn't the name of a variable")
            if "\0" in text:
                raise ValueError(f"{name}: a value can't hold a NUL character")
        return value

    @field_validator("environment_allowlist")
    @classmethod
    def _allowlist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _VARIABLE.match(name):
                raise ValueError(f"{name!r} isn't the name of a variable")
        return value
