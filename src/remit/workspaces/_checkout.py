"""One open checkout, from the node's side: commands, file operations, stop and close."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from remit.contract import Isolation, SandboxLevel
from remit.workspaces._checkout_request import CheckoutRequest
from remit.workspaces._command import CommandResult, CommandSpec, Stopped
from remit.workspaces._dialogue import Dialogue
from remit.workspaces._failures import KeeperLost, WorkspaceOperationError
from remit.workspaces._link import KeeperLink
from remit.workspaces._masking import Masker, MaskingStream
from remit.workspaces._network import proxy_environment

__all__ = ["Checkout"]

_STOP_GRACE_MS: Final = 2_000
_SHIELD_S: Final = 15.0
"""How long a cancelled caller waits for its command to be gone: grace, kill and a stuck process."""


class Checkout:
    """One open checkout. Every method may be called at the same time as the others, and cancelled."""

    def __init__(
        self, request: CheckoutRequest, link: KeeperLink, opened: dict[str, Any], sandbox: SandboxLevel
    ) -> None:
        self._link = link
        self._masker = request.masker
        self.checkout_id = request.checkout_id
        self.generation = request.generation
        self.root: str = opened["root"]
        """Where commands see the tree: the workspace root's path, unless `notes` say otherwise."""
        self.isolation: Isolation = opened["isolation"]
        self.sandbox: SandboxLevel = sandbox
        self.notes: tuple[str, ...] = tuple(opened["notes"])
        """What the user should know: a fallback and why, what isn't shown."""
        self.storage = request.storage
        self.pid: int = opened["pid"]
        """The keeper's process."""

    async def run(
        self, spec: CommandSpec, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        """Runs a command and returns when everything that it started is gone.

        Args:
            spec: what to run.
            on_output: is called with output as it comes; some is left out when the node doesn't keep up.

        Raises:
            WorkspaceOperationError: it wasn't started: the call id is in use, or the checkout is closing.
            KeeperLost: the checkout is gone.

        Cancellation: the command is stopped (TERM, grace, KILL) and gone before the cancel is raised.
        """
        params = _order(spec, streamed=on_output is not None)
        viewer = None
        stream = MaskingStream(self._masker)
        if on_output is not None:
            viewer = _decoded(lambda data: _pass_on(stream.feed(data), on_output))
        number, answer = self._link.send("run", params, on_part=viewer)
        try:
            result = CommandResult.from_answer(await asyncio.shield(answer))
            if on_output is not None:
                _pass_on(stream.feed(b"", final=True), on_output)
            return result.masked(self._masker)
        except WorkspaceOperationError as error:
            raise _without_secrets(error, self._masker) from None
        except asyncio.CancelledError:
            await self._stop_and_wait(spec.call_id, answer)
            raise
        finally:
            self._link.forget(number)

    async def _stop_and_wait(self, call_id: str, answer: asyncio.Future[dict[str, Any]]) -> None:
        try:
            self._link.send("stop", {"call_id": call_id, "grace_ms": _STOP_GRACE_MS})
            await _despite_cancels(answer, _SHIELD_S)
        except (WorkspaceOperationError, KeeperLost):
            return
        except TimeoutError:
            self._kill_keeper()

    def _kill_keeper(self) -> None:
        """Ends a keeper that doesn't answer (stopped, by a command without a sandbox), and all below it."""
        if not self._link.is_closed:  # until then its number is its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def _require_answer(self) -> None:
        """Kills a keeper that doesn't say a word; to close a checkout may take long, to answer mustn't."""
        try:
            async with asyncio.timeout(_SHIELD_S):
                await self.pids()
        except TimeoutError:
            self._kill_keeper()
            raise KeeperLost("the process that holds the checkout didn't answer; it was killed") from None

    def converse(self, spec: CommandSpec) -> Dialogue:
        """Starts a program that is talked to; it ends with the checkout at the latest.

        Raises:
            WorkspaceOperationError: what is to be started doesn't fit into a frame.
        """
        params = _order(spec, streamed=False)
        return Dialogue(self._link, spec.call_id, self._link.send("converse", params))

    async def call(self, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Does one file operation in the keeper.

        Raises:
            WorkspaceOperationError: it was refused or failed; `reason` is the tool status word.
            KeeperLost: the checkout is gone.

        Cancellation: the operation is stopped before the cancel is raised; it was done whole or not at all,
        as far as the operation itself keeps to that.
        """
        number, answer = self._link.send("call", {"operation": operation, "arguments": dict(arguments)})
        try:
            return self._masked(await asyncio.shield(answer))
        except WorkspaceOperationError as error:  # it may quote the file, or name what a link leads to
            raise _without_secrets(error, self._masker) from None
        except asyncio.CancelledError:
            try:
                self._link.send("cancel_call", {"number": number})
                await _despite_cancels(answer, _SHIELD_S)
            except (WorkspaceOperationError, KeeperLost, TimeoutError):
                pass
            raise
        finally:
            self._link.forget(number)

    def _masked(self, answer: dict[str, object]) -> dict[str, object]:
        if not self._masker:
            return answer
        return {name: _mask_value(value, self._masker) for name, value in answer.items()}

    async def stop(
        self, call_id: str | None = None, *, grace_ms: int = _STOP_GRACE_MS
    ) -> tuple[Stopped, ...]:
        """Stops one command, or all: TERM, the grace, KILL. Returns when their processes are gone.

        A command that has ended already is answered `already_ended`.

        Raises:
            KeeperLost: the checkout is gone, and with it everything that ran.
        """
        try:
            async with asyncio.timeout(grace_ms / 1000 + _SHIELD_S):
                answer = await self._link.ask("stop", {"call_id": call_id, "grace_ms": grace_ms})
        except TimeoutError:
            self._kill_keeper()
            raise KeeperLost("the process that holds the checkout didn't answer; it was killed") from None
        stopped = tuple(Stopped.from_answer(item) for item in answer["stopped"])
        if call_id is not None and not stopped:
            return (Stopped(call_id=call_id, label=call_id, how="already_ended", ms=0, pids=()),)
        return stopped

    async def pids(self) -> Mapping[str, tuple[int, ...]]:
        """What runs here now: the processes of each command, by its call id.

        Raises:
            KeeperLost: the checkout is gone, and with it everything that ran.
        """
        answer = await self._link.ask("pids", {})
        return {call_id: tuple(pids) for call_id, pids in answer.items()}

    async def close(self, *, keep: bool = False) -> tuple[str, ...]:
        """Ends what still runs, unmounts, and removes the checkout's folder or, with `keep`, leaves its tree.

        Returns:
            What couldn't be removed, in words. Closing twice is fine.

        Cancellation: the keeper goes on closing; it ends by itself.
        """
        try:
            await self._require_answer()
            answer = await self._link.ask("close", {"keep": keep})
        except KeeperLost:
            return ()
        self._link.close()
        await self._link.wait_closed()
        return tuple(answer["problems"])


def _without_secrets(error: WorkspaceOperationError, masker: Masker) -> WorkspaceOperationError:
    if not masker:
        return error
    fields = {name: _mask_value(value, masker) for name, value in error.fields.items()}
    return WorkspaceOperationError(masker.mask(error.message), **fields)


def _mask_value(value: object, masker: Masker) -> object:
    """A text, or a list of texts, without secrets."""
    if isinstance(value, str):
        return masker.mask(value)
    if isinstance(value, list):
        return [_mask_value(item, masker) for item in cast("list[object]", value)]
    return value


def _order(spec: CommandSpec, *, streamed: bool) -> dict[str, Any]:
    proxied = isinstance(spec.network, tuple) and spec.confined
    environment = {**(proxy_environment() if proxied else {}), **spec.environment}
    return asdict(spec) | {"environment": environment, "streamed": streamed}


def _pass_on(data: bytes, on_output: Callable[[bytes], None]) -> None:
    if data:
        on_output(data)


def _decoded(on_output: Callable[[bytes], None]) -> Callable[[dict[str, Any]], None]:
    return lambda part: on_output(base64.b64decode(part["output"]))


async def _despite_cancels(answer: asyncio.Future[dict[str, Any]], timeout_s: float) -> None:
    """Waits for an answer within a bound, also when the waiter is cancelled again meanwhile."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not answer.done():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise TimeoutError
        try:
            await asyncio.wait({answer}, timeout=left)
        except asyncio.CancelledError:  # the caller raises the first one once the command is gone
            continue
