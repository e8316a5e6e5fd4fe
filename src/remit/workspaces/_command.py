"""A command to run in a checkout, what came of it, and how it was stopped."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from remit.workspaces._masking import Masker

__all__ = ["CommandResult", "CommandSpec", "CommandStatus", "Stopped"]

CommandStatus = Literal["exited", "signalled", "timed_out", "cancelled", "failed_to_start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command to run in a checkout."""

    call_id: str
    """Unique within the checkout while the command runs."""
    argv: tuple[str, ...]
    """A shell's text goes as `("/bin/sh", "-c", text)`."""
    cwd: str = ""
    """Folder relative to the root; empty: the root."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside what the checkout sets; it wins."""
    timeout_ms: int
    """From the call to TERM; KILL follows after a grace of 2 s."""
    max_output_bytes: int = 1_048_576
    """Kept per stream, head and tail."""
    network: bool | tuple[str, ...] = False
    """True: the machine's; a list: these `HOST:PORT`, through a proxy, and nothing else."""
    confined: bool = True
    """False: outside the checkout's sandbox, in no environment but `environment`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What came of a command, once everything that it started is gone."""

    status: CommandStatus
    exit_code: int | None
    """Above 128: it may have been a signal (128 + number), where the kernel doesn't tell."""
    signal: int | None
    duration_ms: int
    stdout: bytes
    """Raw head and tail."""
    stderr: bytes
    stdout_total_bytes: int
    stderr_total_bytes: int
    text: str
    """What a model may see: both streams in arrival order, decoded and cleaned."""
    truncated: bool
    """Whether `text` lacks something in the middle."""
    leftovers: tuple[str, ...]
    """What was still running when the command had ended, and was killed: `sleep 600 (pid 12)`."""
    denied: tuple[str, ...]
    """Hosts that it wanted to reach and mustn't, in words."""
    message: str | None
    """What happened in words, where status and exit code don't say it."""

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> CommandResult:
        """The result as the keeper sent it."""
        values = dict(answer)
        values["stdout"] = base64.b64decode(values["stdout"])
        values["stderr"] = base64.b64decode(values["stderr"])
        values["leftovers"] = tuple(values["leftovers"])
        values["denied"] = tuple(values["denied"])
        return cls(**values)

    def masked(self, masker: Masker) -> CommandResult:
        """The same without secrets."""
        if not masker:
            return self
        return replace(
            self,
            stdout=masker.mask_bytes(self.stdout),
            stderr=masker.mask_bytes(self.stderr),
            text=masker.mask(self.text),
            leftovers=tuple(masker.mask(one) for one in self.leftovers),
            denied=tuple(masker.mask(one) for one in self.denied),
            message=None if self.message is None else masker.mask(self.message),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How one command was stopped."""

    call_id: str
    label: str
    """The command as a person would name it."""
    how: Literal["already_ended", "term", "kill"]
    ms: int
    """From the request to the last process's end."""
    pids: tuple[int, ...]
    """The machine's numbers of the processes that ran when the stop came."""

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> Stopped:
        """The report as the keeper sent it."""
        values = dict(answer)
        values["pids"] = tuple(values["pids"])
        return cls(**values)
