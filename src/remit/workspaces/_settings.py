"""What a workspace is, as configuration states it: one `[[nodes.N.workspaces]]` table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, field_validator, model_validator

from remit.contract import Gate, Model, Preserve
from remit.workspaces._network import Network, check_hosts
from remit.workspaces._probe import IsolationWanted, SandboxWanted
from remit.workspaces._protection import PROTECTED as DEFAULT_PROTECTED
from remit.workspaces._secrets import SecretDefinition

__all__ = ["DEFAULT_PROTECTED", "CommandDefinition", "Mount", "Operation", "WorkspaceSettings"]

Operation = Literal["read", "write", "command"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_Bytes = Annotated[int, Field(gt=0, le=64 * 1024 * 1024, strict=True)]


class CommandDefinition(Model):
    """A named command: what `run_command` and checks run."""

    id: str
    executable: str
    """A name that is looked up in the sandbox's PATH, or a path."""
    args: tuple[str, ...] = ()
    extra_args: bool = False
    """Whether a model may append arguments of its own."""

    @field_validator("id")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _ID.match(value):
            raise ValueError("an id is 1 to 64 letters, digits, `_`, `.` or `-`")
        return value

    @field_validator("executable")
    @classmethod
    def _executable(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise ValueError("names no program")
        return value

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its fixed arguments."""
        return (self.executable, *self.args)


def _mount_from_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    writable = value.endswith(":rw")
    return {"source": value.removesuffix(":rw").removesuffix(":ro"), "writable": writable}


class Mount(Model):
    """A folder outside the root that commands may see, at its own path; as text: `/path[:ro|:rw]`."""

    source: Path
    writable: bool = False

    @field_validator("source")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("a mount is an absolute path")
        return value


class WorkspaceSettings(Model):
    """One workspace of a node."""

    ref: str
    """The name by which bindings mean it."""
    root: Path
    """A relative one is relative to the file that names it; whoever reads that file resolves it."""
    operations: tuple[Operation, ...] = ("read", "write", "command")
    shell: bool = False
    """Whether models may run any text in a shell; it gives up "named commands only"."""
    network: Network = False
    """What commands reach: false, true, or a list of `HOST:PORT`."""
    isolation: IsolationWanted = "auto"
    sandbox: SandboxWanted = "auto"
    commands: tuple[CommandDefinition, ...] = ()
    checks: tuple[str, ...] | None = None
    """Ids of `commands` that the node itself runs; None: found from the project's files; empty: none."""
    gate: Gate = "no_worse"
    environment_allowlist: tuple[str, ...] = ()
    """Variables of the node's own environment that commands get."""
    toolchains: Literal["auto", "none"] | tuple[Path, ...] = "auto"
    """`auto`: what the workspace uses; a list: exactly these folders."""
    path: tuple[Path, ...] = ()
    """Folders put in front of the sandbox's PATH, and shown in it."""
    mounts: tuple[Annotated[Mount, BeforeValidator(_mount_from_text)], ...] = ()
    carry: tuple[str, ...] = (".venv", "node_modules")
    """Ignored folders that a checkout gets where its base lacks them."""
    setup: tuple[str, ...] = ()
    """Shell lines run once per base, before the first run, with what they write kept for later ones."""
    setup_network: Network | None = None
    """What setup commands reach; None: what other commands do."""
    setup_inputs: tuple[str, ...] = ()
    """Globs of further files that setup hangs on, beside lock files and manifests."""
    secrets: tuple[SecretDefinition, ...] = ()
    """Secrets that setup commands, checks or a model's commands get as variables."""
    protected: tuple[str, ...] = DEFAULT_PROTECTED
    """Globs of paths whose delivery needs approval."""
    freeze: tuple[str, ...] = ()
    """Globs of paths that no patch may touch."""
    mcp: tuple[str, ...] = ()
    """Names of the MCP servers that runs here may use."""
    preserve: Preserve = "failed"
    """Which ended runs keep their checkout where no request or binding says so; `never` always holds."""
    max_read_bytes: _Bytes = 1_048_576
    max_write_bytes: _Bytes = 1_048_576
    max_output_bytes: _Bytes = 1_048_576
    max_command_timeout_ms: Annotated[int, Field(gt=0, strict=True)] = 1_800_000

    @field_validator("ref")
    @classmethod
    def _ref(cls, value: str) -> str:
        if not _ID.match(value):
            raise ValueError("a ref is 1 to 64 letters, digits, `_`, `.` or `-`")
        return value

    @field_validator("network", "setup_network")
    @classmethod
    def _network(cls, value: Network | None) -> Network | None:
        return value if value is None or isinstance(value, bool) else check_hosts(value) or False

    @field_validator("environment_allowlist")
    @classmethod
    def _variables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _VARIABLE.match(name):
                raise ValueError(f"{name!r} isn't the name of a variable")
        return value

    @field_validator("carry", "protected", "freeze", "setup_inputs")
    @classmethod
    def _relative(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if not path or path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"{path!r} must be relative to the root, without `..`")
        return value

    @field_validator("isolation")
    @classmethod
    def _isolation(cls, value: IsolationWanted) -> IsolationWanted:
        if value == "in_place":
            raise ValueError("work in place is asked for run by run: `remit run --in-place`")
        return value

    @field_validator("toolchains", mode="before")
    @classmethod
    def _toolchain_words(cls, value: object) -> object:
        if value not in ("auto", "none") and not isinstance(value, (list, tuple)):
            raise ValueError("must be 'auto', 'none', or a list of absolute folders")
        return cast("object", value)

    @field_validator("network", "setup_network", mode="before")
    @classmethod
    def _network_words(cls, value: object) -> object:
        if value is not None and not isinstance(value, (bool, list, tuple)):
            raise ValueError('must be true, false, or a list of hosts, such as ["example.com:443"]')
        return cast("object", value)

    @field_validator("toolchains")
    @classmethod
    def _absolute_folders(
        cls, value: Literal["auto", "none"] | tuple[Path, ...]
    ) -> Literal["auto", "none"] | tuple[Path, ...]:
        if not isinstance(value, str) and not all(folder.is_absolute() for folder in value):
            raise ValueError("a toolchain folder is an absolute path")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [command.id for command in self.commands]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"commands: the id {name!r} is given twice")
        names = [secret.name for secret in self.secrets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"secrets: the name {name!r} is given twice")
        for check in self.checks or ():
            if check not in ids:
                raise ValueError(f"checks: there is no command {check!r}")
        return self

    def get_command(self, command_id: str) -> CommandDefinition:
        """The named command.

        Raises:
            KeyError: there is none of that id.
        """
        for command in self.commands:
            if command.id == command_id:
                return command
        raise KeyError(command_id)

    @property
    def network_allowed(self) -> bool:
        """Whether commands reach anything outside."""
        return bool(self.network)
