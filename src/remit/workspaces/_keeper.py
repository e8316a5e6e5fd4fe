"""The owner of a node's zygote: starts it, opens checkouts through it, ends it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

from remit.contract import SandboxLevel
from remit.workspaces._asleep import Asleep, Begun
from remit.workspaces._bubblewrap import find_bubblewraps
from remit.workspaces._checkout import Checkout
from remit.workspaces._checkout_request import CheckoutRequest
from remit.workspaces._failures import (
    KeeperLost,
    SandboxUnavailable,
    WorkspaceOperationError,
    WorkspaceRefused,
)
from remit.workspaces._link import KeeperLink
from remit.workspaces._masking import no_masker
from remit.workspaces._probe import Probe, choose_sandbox
from remit.workspaces._sandbox import plan_checkout, prepare_etc, trial_options

__all__ = ["Keeper"]

_START_TIMEOUT_S: Final = 20.0
_END_TIMEOUT_S: Final = 10.0
_GONE_WITHIN_S: Final = 10.0
"""For a keeper whose opening is taken back; it looks up between the steps of its work."""
_BUSY_PAUSE_S: Final = 0.002
_REMEMBERED: Final = 32
_UNMASKED: Final = no_masker()


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
        self._opened: deque[tuple[CheckoutRequest, dict[str, Any]]] = deque(maxlen=_REMEMBERED)
        """What was opened lately, without what is one checkout's own, and what became of it."""
        self.pid = process.pid
        """The zygote's process."""
        self.probe: Probe

    @classmethod
    async def start(cls, *, data: Path) -> Self:
        """Starts the zygote and lets it find out what this machine allows.

        Args:
            data: the node's data folder; checkouts lie below it.

        Raises:
            KeeperLost: the process doesn't come up; the message holds what it said.
            SandboxUnavailable: this system isn't Linux.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(
                "checkouts need Linux so far: run remit in a Linux machine or container",
                reasons={"platform": sys.platform},
                fix="run remit in a Linux machine or container",
            )
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
                await asyncio.to_thread(prepare_etc, self._data)
                answer = await self._order(
                    {
                        "probe": {
                            "data": str(self._data),
                            "bubblewraps": [str(program) for program in find_bubblewraps()],
                            "options": list(trial_options()),
                        }
                    }
                )
        except TimeoutError:
            raise KeeperLost("the keeper doesn't answer", reason="unavailable") from None
        link, found = answer
        link.close()
        self.probe = Probe.from_answer(found)

    async def open(self, request: CheckoutRequest, *, may_sleep: bool = False) -> Checkout:
        """Opens a checkout.

        Args:
            request: which, and how.
            may_sleep: whether one of which is known how it opens, since one just like it did, may be opened
                when something first looks into it.

        Raises:
            SandboxUnavailable: no sandbox can be had; the message says what to do.
            WorkspaceRefused: the folder can't be a workspace.
            KeeperLost: it couldn't be opened, with `reason` a workspace code.
            OSError: the place of one that is to sleep can't be taken.

        Cancellation: what was begun is taken back by the keeper itself.
        """
        sandbox = choose_sandbox(request.sandbox, self.probe, allow_unconfined=request.allow_unconfined)
        kind = _kind_of(request)
        known = next((opened for other, opened in self._opened if other == kind), None)
        if may_sleep and known is not None:
            begin = partial(self._begin_asleep, request, sandbox, known)
            asleep = await Asleep.lie_down(request.storage, begin)
            return Checkout(request, None, known, sandbox, asleep=asleep)
        link, opened = await self._begin(request, sandbox)
        self._forget(kind)  # the last word counts
        self._opened.appendleft((kind, opened))
        return Checkout(request, link, opened, sandbox)

    async def _begin(self, request: CheckoutRequest, sandbox: SandboxLevel) -> Begun:
        plan = await asyncio.to_thread(plan_checkout, request, probe=self.probe, sandbox=sandbox)
        try:
            return await self._order({"open": plan.to_json()})
        except WorkspaceOperationError as error:
            raise _refused(error) from None

    async def _begin_asleep(
        self, request: CheckoutRequest, sandbox: SandboxLevel, known: dict[str, Any]
    ) -> Begun:
        """Opens what was said to be open.

        Raises:
            KeeperLost: it can't be opened any more, or not in the way that was told.
        """
        try:
            link, opened = await self._begin(request, sandbox)
        except KeeperLost:
            self._forget(_kind_of(request))  # the next one is said to be open only once it is
            raise
        except WorkspaceRefused as error:
            self._forget(_kind_of(request))
            raise KeeperLost(error.message, reason="refused") from None
        if opened["notes"] != known["notes"]:
            self._forget(_kind_of(request))  # something is otherwise by now: the next one is looked at anew
        if (opened["root"], opened["isolation"]) == (known["root"], known["isolation"]):
            return link, opened
        self._forget(_kind_of(request))
        await link.end(within_s=_GONE_WITHIN_S)
        what = f"{opened['isolation']} at {opened['root']}"
        raise KeeperLost(f"the checkout opens otherwise than the one before it: {what}", reason="unavailable")

    def _forget(self, kind: CheckoutRequest) -> None:
        """How such ones open isn't known any more; several that were the first at once are all forgotten."""
        kept = [(other, opened) for other, opened in self._opened if other != kind]
        self._opened = deque(kept, maxlen=_REMEMBERED)

    async def _order(self, order: dict[str, Any]) -> tuple[KeeperLink, dict[str, Any]]:
        """Sends an order with a socket of its own, and waits for the forked process's first word."""
        if self._closed or self._process.poll() is not None:
            raise KeeperLost(f"the keeper has ended: {self._last_words()}", reason="lost")
        ours, theirs = socket.socketpair()
        try:
            link = await KeeperLink.connect(ours)
            try:
                await self._hand_over(theirs)
            except BaseException:
                link.close()
                raise
        finally:
            theirs.close()
        try:
            _, answer = link.send_order(order)
            return link, await answer
        except BaseException:
            # While it is there it holds the checkout's folder, or makes it anew where it was just removed.
            await link.end(within_s=_GONE_WITHIN_S)
            raise

    async def _hand_over(self, theirs: socket.socket) -> None:
        """Gives the zygote the other end of a keeper's socket."""
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while True:
            try:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
            except BlockingIOError:  # many at once: the zygote is still forking for others
                if asyncio.get_running_loop().time() > deadline:
                    raise KeeperLost("the keeper takes no orders", reason="unavailable") from None
                await asyncio.sleep(_BUSY_PAUSE_S)
            except OSError as error:
                raise KeeperLost(f"the keeper takes no orders: {error}", reason="lost") from error
            else:
                return

    @property
    def alive(self) -> bool:
        """Whether it takes orders; one that has died never does again."""
        return not self._closed and self._process.poll() is None

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


def _kind_of(request: CheckoutRequest) -> CheckoutRequest:
    """All that decides how a checkout opens: two requests that are equal so open in the same way."""
    folder = request.data
    git_dir = None if request.git_dir is None else folder
    return replace(request, checkout_id="", generation=0, storage=folder, git_dir=git_dir, masker=_UNMASKED)


def _refused(error: WorkspaceOperationError) -> Exception:
    kind = error.fields.get("kind")
    if kind == "refused":
        return WorkspaceRefused(error.message)
    if kind == "unavailable":
        return KeeperLost(error.message, reason="unavailable")
    if kind == "storage_full":
        return KeeperLost(error.message, reason="storage_full")
    return KeeperLost(error.message, reason="refused")
