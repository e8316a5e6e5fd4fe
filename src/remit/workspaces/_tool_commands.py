"""Which program a command tool starts, and what a model is told of how it ended."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from remit.contract import ToolStatus
from remit.workspaces._command import CommandResult
from remit.workspaces._network import Network, network_hint
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._tool_arguments import ArgumentsRefused
from remit.workspaces._tool_schemas import MAX_COMMAND_CHARS

__all__ = ["command_argv", "command_call_id", "exit_code_of", "in_words", "shown_command", "status_of"]

_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_STATUSES: Final[Mapping[str, ToolStatus]] = {
    "exited": "success",
    "signalled": "success",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "failed_to_start": "failed",
}


def command_call_id(stage_id: str, tool_call_id: str) -> str:
    """What a checkout knows a tool's command by."""
    return f"{stage_id}/{tool_call_id}"


def command_argv(name: str, arguments: Mapping[str, object], settings: WorkspaceSettings) -> tuple[str, ...]:
    """The argument list that is started. Only `run_shell` goes through a shell.

    Raises:
        ArgumentsRefused: an empty or too long text, or arguments that the command doesn't take.
    """
    if name == "run_shell":
        text = cast("str", arguments["command"])
        _check_texts([text])
        if not text.strip():
            raise ArgumentsRefused("`command` is empty")
        return (find_shell(), "-c", text)
    command = settings.get_command(cast("str", arguments["id"]))
    extra = cast("list[str]", arguments.get("args", []))
    if extra and not command.extra_args:
        raise ArgumentsRefused(f"the command `{command.id}` takes no arguments of yours")
    _check_texts(extra)
    return (*command.argv, *extra)


def find_shell() -> str:
    """The shell that models expect where it is there, else the plain one."""
    return next((shell for shell in _SHELLS if Path(shell).exists()), _SHELLS[-1])


def _check_texts(texts: Sequence[str]) -> None:
    for text in texts:
        if "\0" in text:
            raise ArgumentsRefused("a command can't hold a NUL character")
        if len(text.encode("utf-8", "surrogatepass")) > MAX_COMMAND_CHARS:
            raise ArgumentsRefused("the command is too long; write it to a file and run that")
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise ArgumentsRefused("a command can't hold a lone surrogate")


def shown_command(name: str, argv: Sequence[str]) -> str:
    """The command line as a person would type it."""
    return argv[-1] if name == "run_shell" else shlex.join(argv)


def status_of(result: CommandResult) -> ToolStatus:
    """The tool status: a command that ran to its end is a success, whatever its exit code."""
    return _STATUSES[result.status]


def exit_code_of(result: CommandResult) -> int | None:
    """The exit code, as a shell tells it where a signal ended the command; None where there is none."""
    if result.exit_code is None and result.signal is not None:
        return 128 + result.signal
    return result.exit_code


def in_words(result: CommandResult, *, timeout_ms: int, network: Network = True) -> str:
    """How the command ended, in square brackets, for the end of what a model is shown."""
    took = f"{result.duration_ms} ms"
    if result.status == "timed_out":
        words = f"timed out after {timeout_ms} ms; all that it had started was stopped"
    elif result.status == "cancelled":
        words = f"cancelled after {took}; all that it had started was stopped"
    elif result.status == "failed_to_start":
        words = "it didn't start"
    elif result.status == "signalled":
        words = f"ended by signal {result.signal} after {took}"
    else:
        words = f"exit code {result.exit_code} after {took}"
    if result.message:
        words += f"; {result.message}"
    lines = [f"[{words}]"]
    if result.leftovers:
        lines.append(f"[still running at its end, and stopped: {', '.join(result.leftovers)}]")
    failed = status_of(result) != "success" or bool(exit_code_of(result))
    hint = network_hint(network, text=result.text, denied=result.denied, failed=failed)
    return "\n".join([*lines, hint] if hint else lines)
