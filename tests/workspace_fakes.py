"""A checkout without keeper or sandbox: file operations on a real folder, commands as scripted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._failures import WorkspaceOperationError
from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._output import BoundedOutput
from remit.workspaces.keeper._refusals import OperationRefused

Script = Callable[[CommandSpec], CommandResult]


def command_result(
    stdout: bytes = b"",
    *,
    stderr: bytes = b"",
    exit_code: int | None = 0,
    status: str = "exited",
    max_bytes: int = 1_048_576,
    **fields: object,
) -> CommandResult:
    """A result as a keeper would give it for these bytes."""
    output = BoundedOutput(max_bytes)
    output.feed(stdout, source=1)
    output.feed(stderr, source=2)
    values: dict[str, object] = {
        "status": status,
        "exit_code": exit_code,
        "signal": None,
        "duration_ms": 12,
        "stdout": stdout[:max_bytes],
        "stderr": stderr[:max_bytes],
        "stdout_total_bytes": len(stdout),
        "stderr_total_bytes": len(stderr),
        "text": output.text(),
        "truncated": output.truncated,
        "leftovers": (),
        "denied": (),
        "message": None,
        **fields,
    }
    return CommandResult(**values)  # type: ignore[arg-type] - any of its fields


class FolderCheckout:
    """Does file operations in place, and answers commands from a function. Counts what reached it."""

    def __init__(self, root: Path, script: Script | None = None) -> None:
        self.root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.script = script or (lambda spec: command_result())
        self.specs: list[CommandSpec] = []
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.gate: asyncio.Event | None = None
        """While it is there and not set, commands and operations wait."""
        self.stopped = 0

    def close(self) -> None:
        os.close(self.root_fd)

    async def run(
        self, spec: CommandSpec, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        self.specs.append(spec)
        await self._wait()
        result = self.script(spec)
        if on_output is not None:
            on_output(result.stdout)
        return result

    async def call(self, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
        self.calls.append((operation, dict(arguments)))
        await self._wait()
        try:
            return OPERATIONS[operation](self.root_fd, dict(arguments))
        except OperationRefused as refusal:
            raise WorkspaceOperationError(refusal.message, status=refusal.status) from None

    async def _wait(self) -> None:
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
