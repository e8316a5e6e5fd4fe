"""The node's side of checkouts: start the zygote, open checkouts, run commands and file operations in them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, Self

from remit.contract import Isolation, SandboxLevel
from remit.workspaces._bubblewrap import find_bubblewrap
from remit.workspaces._failures import (
    KeeperLost,
    WorkspaceOperationError,
    WorkspaceRefused,
)
from remit.workspaces._link import KeeperLink
from remit.workspaces._probe import IsolationWanted, Probe, SandboxWanted, choose_sandbox
from remit.workspaces._sandbox import plan_checkout, trial_options
from remit.workspaces._toolchains import Toolchains
from remit.workspaces.keeper._plan import Limits

__all__ = ["Checkout", "CheckoutRequest", "CommandResult", "CommandSpec", "Keeper", "Stopped"]

_START_TIMEOUT_S: Final = 20.0
_END_TIMEOUT_S: Final = 10.0
_STOP_GRACE_MS: Final = 2_000
_SHIELD_S: Final = 15.0
"""How long a cancelled caller waits for its command to be gone: grace, kill and a stuck process."""

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
    network: bool = False


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
    message: str | None
    """What happened in words, where status and exit code don't say it."""

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> CommandResult:
        """The result as the keeper sent it."""
        values = dict(answer)
        values["stdout"] = base64.b64decode(values["stdout"])
        values["stderr"] = base64.b64decode(values["stderr"])
        values["leftovers"] = tuple(values["leftovers"])
        return cls(**values)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRequest:
    """Which checkout to open, and how."""

    checkout_id: str
    generation: int = 1
    root: Path
    """The workspace root, absolute; commands see the checkout's tree at this path."""
    lower: Path | None = None
    """The folder that the checkout starts from, only read; None: the root as it is."""
    storage: Path
    """The checkout's own folder, `<data>/checkouts/<id>`; an existing one is opened again."""
    data: Path
    """The node's data folder; commands never see it."""
    isolation: IsolationWanted = "auto"
    sandbox: SandboxWanted = "auto"
    allow_unconfined: bool = False
    is_git: bool = False
    """A git work tree may be copied whatever its size."""
    git_dir: Path | None = None
    """Shown as the tree's `.git`; None: it is left as it is."""
    carry: tuple[str, ...] = ()
    """Folders of the root that another base lacks: `.venv`, `node_modules`."""
    read_only: tuple[str, ...] = ()
    """Paths in the tree that neither commands nor file operations may change."""
    toolchains: Toolchains = field(default_factory=Toolchains)
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Allow-listed variables for all commands."""
    limits: Limits = field(default_factory=Limits)


class Checkout:
    """One open checkout. Every method may be called at the same time as the others, and cancelled."""

    def __init__(
        self, request: CheckoutRequest, link: KeeperLink, opened: dict[str, Any], sandbox: SandboxLevel
    ) -> None:
        self._link = link
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
        params = asdict(spec) | {"environment": dict(spec.environment), "streamed": on_output is not None}
        viewer = None
        if on_output is not None:
            viewer = _decoded(on_output)
        number, answer = self._link.send("run", params, on_part=viewer)
        try:
            return CommandResult.from_answer(await asyncio.shield(answer))
        except asyncio.CancelledError:
            await self._stop_and_wait(spec.call_id, answer)
            raise
        finally:
            self._link.forget(number)

    async def _stop_and_wait(self, call_id: str, answer: asyncio.Future[dict[str, Any]]) -> None:
        try:
            self._link.send("stop", {"call_id": call_id, "grace_ms": _STOP_GRACE_MS})
            await _despite_cancels(answer, _SHIELD_S)
        except (WorkspaceOperationError, KeeperLost, TimeoutError):
            return

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
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            try:
                self._link.send("cancel_call", {"number": number})
                await _despite_cancels(answer, _SHIELD_S)
            except (WorkspaceOperationError, KeeperLost, TimeoutError):
                pass
            raise
        finally:
            self._link.forget(number)

    async def stop(
        self, call_id: str | None = None, *, grace_ms: int = _STOP_GRACE_MS
    ) -> tuple[Stopped, ...]:
        """Stops one command, or all: TERM, the grace, KILL. Returns when their processes are gone.

        A command that has ended already is answered `already_ended`.

        Raises:
            KeeperLost: the checkout is gone, and with it everything that ran.
        """
        answer = await self._link.ask("stop", {"call_id": call_id, "grace_ms": grace_ms})
        stopped = tuple(Stopped(**{**item, "pids": tuple(item["pids"])}) for item in answer["stopped"])
        if call_id is not None and not stopped:
            return (Stopped(call_id=call_id, label=call_id, how="already_ended", ms=0, pids=()),)
        return stopped

    async def close(self, *, keep: bool = False) -> tuple[str, ...]:
        """Ends what still runs, unmounts, and removes the checkout's folder or, with `keep`, leaves its tree.

        Returns:
            What couldn't be removed, in words. Closing twice is fine.

        Cancellation: the keeper goes on closing; it ends by itself.
        """
        try:
            answer = await self._link.ask("close", {"keep": keep})
        except KeeperLost:
            return ()
        self._link.close()
        await self._link.wait_closed()
        return tuple(answer["problems"])


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


class Keeper:
    """Owns the zygote of one node. Start it with `await Keeper.start(...)`, end it with `aclose`."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, errors: IO[bytes], data: Path
    ) -> None:
        self._process = process
        self._control = control
        self._errors = errors
        self._data = data
        self._closed = False
        self.probe: Probe

    @classmethod
    async def start(cls, *, data: Path) -> Self:
        """Starts the zygote and lets it find out what this machine allows.

        Args:
            data: the node's data folder; checkouts lie below it.

        Raises:
            KeeperLost: the process doesn't come up; the message holds what it said.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = tempfile.TemporaryFile(prefix="remit-keeper-")  # noqa: SIM115  closed by aclose
        try:
            process = _start_zygote(theirs, errors)
        except BaseException:
            ours.close()
            errors.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        keeper = cls(process, ours, errors, data)
        try:
            await keeper._hello()
        except BaseException:
            await keeper.aclose()
            raise
        return keeper

    async def _hello(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                if not await loop.sock_recv(self._control, 4096):
                    raise KeeperLost(f"the keeper doesn't start: {self._last_words()}", reason="unavailable")
                bubblewrap = find_bubblewrap()
                answer = await self._order(
                    {
                        "probe": {
                            "data": str(self._data),
                            "bubblewrap": str(bubblewrap or ""),
                            "options": list(trial_options()),
                        }
                    }
                )
        except TimeoutError:
            raise KeeperLost("the keeper doesn't answer", reason="unavailable") from None
        link, found = answer
        link.close()
        self.probe = Probe.from_answer(found, bubblewrap=bubblewrap)

    async def open(self, request: CheckoutRequest) -> Checkout:
        """Opens a checkout.

        Raises:
            SandboxUnavailable: no sandbox can be had; the message says what to do.
            WorkspaceRefused: the folder can't be a workspace.
            KeeperLost: it couldn't be opened, with `reason` a workspace code.

        Cancellation: what was begun is taken back by the keeper itself.
        """
        sandbox = choose_sandbox(request.sandbox, self.probe, allow_unconfined=request.allow_unconfined)
        plan = plan_checkout(request, probe=self.probe, sandbox=sandbox)
        try:
            link, opened = await self._order({"open": asdict(plan)})
        except WorkspaceOperationError as error:
            raise _refused(error) from None
        return Checkout(request, link, opened, sandbox)

    async def _order(self, order: dict[str, Any]) -> tuple[KeeperLink, dict[str, Any]]:
        """Sends an order with a socket of its own, and waits for the forked process's first word."""
        if self._closed or self._process.poll() is not None:
            raise KeeperLost(f"the keeper has ended: {self._last_words()}", reason="lost")
        ours, theirs = socket.socketpair()
        try:
            link = await KeeperLink.connect(ours)
            _, answer = link.expect()
            data = json.dumps(order).encode("utf-8", "surrogatepass")
            try:
                socket.send_fds(self._control, [data], [theirs.fileno()])
            except OSError as error:
                link.close()
                raise KeeperLost(f"the keeper takes no orders: {error}", reason="lost") from error
        finally:
            theirs.close()
        try:
            return link, await answer
        except BaseException:
            link.close()
            raise

    async def aclose(self) -> None:
        """Ends the zygote, its keepers and everything that runs in them. Safe to call twice.

        Cancellation: the zygote still ends by itself; its processes may outlive this call by a moment.
        """
        if self._closed:
            return
        self._closed = True
        self._control.close()
        handle = os.pidfd_open(self._process.pid) if self._process.returncode is None else -1
        try:
            await _wait_readable(handle, _END_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
        finally:
            if handle >= 0:
                os.close(handle)
            self._process.wait(timeout=_END_TIMEOUT_S)
            self._errors.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()

    def _last_words(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        said = os.pread(self._errors.fileno(), 2_000, max(0, size - 2_000)).decode("utf-8", "replace")
        return said.strip().splitlines()[-1] if said.strip() else "it said nothing"


def _start_zygote(theirs: socket.socket, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    # -I and -S: neither the user's environment nor their site-packages decide what the keeper runs.
    package = Path(__file__).resolve().parents[2]
    start = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from remit.workspaces.keeper.__main__ import main; main(sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", start, str(package), str(theirs.fileno()), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=(theirs.fileno(),),
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


async def _wait_readable(handle: int, timeout_s: float) -> None:
    if handle < 0:
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, lambda: ready.done() or ready.set_result(None))
    try:
        async with asyncio.timeout(timeout_s):
            await ready
    finally:
        loop.remove_reader(handle)


def _refused(error: WorkspaceOperationError) -> Exception:
    kind = error.fields.get("kind")
    if kind == "refused":
        return WorkspaceRefused(error.message)
    if kind == "unavailable":
        return KeeperLost(error.message, reason="unavailable")
    if kind == "storage_full":
        return KeeperLost(error.message, reason="storage_full")
    return KeeperLost(error.message, reason="refused")
