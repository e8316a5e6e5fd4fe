"""Secrets that a workspace's commands may get: named by a variable or a file, never written in settings."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import field_validator, model_validator

from remit.contract import Model
from remit.errors import NodeError
from remit.primitives import Secret
from remit.workspaces._masking import Masker, no_masker

__all__ = ["SecretDefinition", "SecretUse", "WorkspaceSecrets", "read_secrets"]

SecretUse = Literal["setup", "checks", "tools"]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MAX_BYTES: Final = 65_536


class SecretDefinition(Model):
    """One secret: where it comes from, and which commands get it as a variable."""

    name: str
    """The variable that commands see."""
    env: str | None = None
    """The node's variable that holds it; None with no `file` either: the one of the same name."""
    file: Path | None = None
    """A file that holds it, whole; line ends at its end aren't part of it."""
    to: tuple[SecretUse, ...] = ("setup",)
    """Who gets it: setup commands, checks, or the commands of a model."""

    @field_validator("name", "env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.match(value):
            raise ValueError(
                f"{value[:80]!r} isn't the name of a variable; a secret itself is never written here"
            )
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.env is not None and self.file is not None:
            raise ValueError(f"{self.name}: name a variable (`env`) or a `file`, not both")
        if not self.to:
            raise ValueError(f"{self.name}: nobody gets it; `to` names setup, checks or tools")
        return self


@dataclass(frozen=True, slots=True)
class WorkspaceSecrets:
    """The secrets of a workspace as they were read; they show as nothing but their names."""

    values: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    uses: Mapping[str, tuple[SecretUse, ...]] = field(default_factory=dict[str, tuple[SecretUse, ...]])
    masker: Masker = field(default_factory=no_masker)

    def environment(self, use: SecretUse) -> dict[str, str]:
        """The variables for one kind of command."""
        return {name: value.reveal() for name, value in self.values.items() if use in self.uses[name]}


def read_secrets(
    definitions: Sequence[SecretDefinition], *, environment: Mapping[str, str]
) -> WorkspaceSecrets:
    """Read every secret, now, so that a missing one is told before anything is spent. Blocking.

    Raises:
        NodeError: One isn't there; the message says where it was looked for.
    """
    values = {one.name: Secret(_read(one, environment)) for one in definitions}
    uses = {one.name: one.to for one in definitions}
    return WorkspaceSecrets(values, uses, Masker(values))


def _read(one: SecretDefinition, environment: Mapping[str, str]) -> str:
    if one.file is not None:
        return _read_file(one.name, one.file)
    variable = one.env or one.name
    value = environment.get(variable, "")
    if not value or "\0" in value:
        raise NodeError(
            f"the secret {one.name} isn't there: set the variable {variable} where this node runs",
            reason="unavailable",
        )
    return value


def _read_file(name: str, path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("not a file")
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise NodeError(
            f"the secret {name} can't be read from {path}: {error.strerror or error}", reason="unavailable"
        ) from None
    value = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
    if not value or "\0" in value or len(data) > _MAX_BYTES:
        raise NodeError(f"the secret {name}: {path} is empty, too large, or no text", reason="unavailable")
    return value
