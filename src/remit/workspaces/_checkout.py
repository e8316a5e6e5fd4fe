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
from remit.workspaces._asleep import Asleep
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
    """One open checkout. Every method may be called at the same time as the others, and cancelled.

    It may be asleep: known to open as others did before it, and opened by the first who looks into it.

    Args:
        request: What was asked for.
        link: To its keeper; None: there is none yet.
        opened: What the keeper said, or said of the last one like it.
        sandbox: How its commands are confined.
        asleep: What stands for the keeper where there is none.
    """

    def __init__(
        self,
        request: CheckoutRequest,
        link: KeeperLink | None,
        opened: dict[str, Any],
        sandbox: SandboxLevel,
        *,
        asleep: Asleep | None = None,
    ) -> None:
        self._link = link
        self._asleep = asleep
        self._waking = asyncio.Lock()
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
        self.pid: int = 0 if link is None else opened["pid"]
        """The keeper's process; 0: it is asleep, and has none."""

    @property
    def is_awake(self) -> bool:
        """Whether its keeper was started; before that nothing can have been changed in it."""
        return self._link is not None

    async def wake(self) -> KeeperLink:
        """Start its keeper, if that wasn't done yet.

        Raises:
            KeeperLost: it can't be, or it is closed.

        Cancellation: what was begun is taken back; the next one to ask begins anew.
        """
        if self._link is not None:
            return self._link
        async with self._waking:
            if self._link is None:
                if self._asleep is None:
                    raise KeeperLost("the checkout is closed", reason="lost")
                self._link, opened = await self._asleep.begin()
                self.pid, self._asleep = opened["pid"], None
            return self._link

    async def can_keep(self) -> bool:
        """Whether there is something that could be kept: one that is asleep is made for it."""
        try:
            await self.wake()
        except KeeperLost:
            return False
        return True

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
        link = await self.wake()
        number, answer = link.send("run", params, on_part=viewer)
        try:
            result = CommandResult.from_answer(await asyncio.shield(answer))
            if on_output is not None:
                _pass_on(stream.feed(b"", final=True), on_output)
            return result.masked(self._masker)
        except WorkspaceOperationError as error:
            raise _without_secrets(error, self._masker) from None
        except asyncio.CancelledError:
            await self._stop_and_wait(link, spec.call_id, answer)
            raise
        finally:
            link.forget(number)

    async def _stop_and_wait(
        self, link: KeeperLink, call_id: str, answer: asyncio.Future[dict[str, Any]]
    ) -> None:
        try:
            link.send("stop", {"call_id": call_id, "grace_ms": _STOP_GRACE_MS})
            await _despite_cancels(answer, _SHIELD_S)
        except (WorkspaceOperationError, KeeperLost):
            return
        except TimeoutError:
            self._kill_keeper()

    def _kill_keeper(self) -> None:
        """Ends a keeper that doesn't answer (stopped, by a command without a sandbox), and all below it."""
        if self._link is not None and not self._link.is_closed:  # until then its number is its own
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

    async def converse(self, spec: CommandSpec) -> Dialogue:
        """Starts a program that is talked to; it ends with the checkout at the latest.

        Raises:
            WorkspaceOperationError: what is to be started doesn't fit into a frame.
            KeeperLost: the checkout is gone.
        """
        params = _order(spec, streamed=False)
        link = await self.wake()
        return Dialogue(link, spec.call_id, link.send("converse", params))

    async def call(self, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Does one file operation in the keeper.

        Raises:
            WorkspaceOperationError: it was refused or failed; `reason` is the tool status word.
            KeeperLost: the checkout is gone.

        Cancellation: the operation is stopped before the cancel is raised; it was done whole or not at all,
        as far as the operation itself keeps to that.
        """
        link = await self.wake()
        number, answer = link.send("call", {"operation": operation, "arguments": dict(arguments)})
        try:
            return self._masked(await asyncio.shield(answer))
        except WorkspaceOperationError as error:  # it may quote the file, or name what a link leads to
            raise _without_secrets(error, self._masker) from None
        except asyncio.CancelledError:
            try:
                link.send("cancel_call", {"number": number})
                await _despite_cancels(answer, _SHIELD_S)
            except (WorkspaceOperationError, KeeperLost, TimeoutError):
                pass
            raise
        finally:
            link.forget(number)

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
        if self._link is None:
            return () if call_id is None else (_ended_already(call_id),)
        try:
            async with asyncio.timeout(grace_ms / 1000 + _SHIELD_S):
                answer = await self._link.ask("stop", {"call_id": call_id, "grace_ms": grace_ms})
        except TimeoutError:
            self._kill_keeper()
            raise KeeperLost("the process that holds the checkout didn't answer; it was killed") from None
        stopped = tuple(Stopped.from_answer(item) for item in answer["stopped"])
        if call_id is not None and not stopped:
            return (_ended_already(call_id),)
        return stopped

    async def pids(self) -> Mapping[str, tuple[int, ...]]:
        """What runs here now: the processes of each command, by its call id.

        Raises:
            KeeperLost: the checkout is gone, and with it everything that ran.
        """
        if self._link is None:
            return {}
        answer = await self._link.ask("pids", {})
        return {call_id: tuple(pids) for call_id, pids in answer.items()}

    async def close(self, *, keep: bool = False) -> tuple[str, ...]:
        """Ends what still runs, unmounts, and removes the checkout's folder or, with `keep`, leaves its tree.

        Returns:
            What couldn't be removed, in words. Closing twice is fine.

        Cancellation: the keeper goes on closing; it ends by itself.
        """
        async with self._waking:  # one that is just waking up is closed once it has
            link, asleep, self._asleep = self._link, self._asleep, None
        if link is None:
            if asleep is not None:
                asleep.end()
            return ()
        try:
            await self._require_answer()
            answer = await link.ask("close", {"keep": keep})
        except KeeperLost:
            return ()
        link.close()
        await link.wait_closed()
        return tuple(answer["problems"])


def _ended_already(call_id: str) -> Stopped:
    return Stopped(call_id=call_id, label=call_id, how="already_ended", ms=0, pids=())


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
