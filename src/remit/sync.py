"""The embedding API for programs without an event loop: the same calls, each waited for.

    with remit.SyncHost(remit.load_config()) as host:
        run = host.start({"prompt": "make the failing test pass"})
        for event in run.events():
            print(event.type)
        print(run.wait().output)

The host lives on a loop of its own, in a thread of its own; its methods may be called from any other thread.
Ctrl-C ends a wait, never a run: leaving the block closes the host, and what still runs is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from remit.config import Config
from remit.contract import Delivery, DryRun, RunRequest, RunView
from remit.errors import InternalError, MisuseError
from remit.events import Event
from remit.host import CancelOutcome, Host, HostStatus, OnEvent, Run
from remit.primitives import check_length
from remit.runs import CancelBy, Scope, Tombstone

__all__ = ["SyncHost", "SyncRun", "SyncScope"]

_Value = TypeVar("_Value")


class SyncHost:
    """`remit.Host` for programs without an event loop. It is opened once, by `with`.

    Args:
        config: The settings in force.
        arguments: Those of `remit.Host`.
    """

    def __init__(self, config: Config, **arguments: Any) -> None:
        self._host = Host(config, **arguments)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._close: asyncio.Event | None = None
        self._pid: int | None = None

    # ---- opening and closing

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise MisuseError("a host is opened once: make another one")
        opened: Future[None] = Future()
        self._pid = os.getpid()
        # Not a daemon: whoever leaves without closing is waited for, so that nothing is torn in the middle.
        self._thread = threading.Thread(target=self._live, args=(opened,), name="remit host")
        self._thread.start()
        try:
            opened.result()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        loop, close, thread = self._loop, self._close, self._thread
        if loop is not None and close is not None:
            with contextlib.suppress(RuntimeError):  # it has closed by itself
                loop.call_soon_threadsafe(close.set)
        if thread is not None:
            thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _live(self, opened: Future[None]) -> None:
        try:
            asyncio.run(self._hold_open(opened))
        finally:
            if not opened.done():
                failure, self._failure = self._failure, None
                opened.set_exception(failure or InternalError("the host's thread has died"))

    async def _hold_open(self, opened: Future[None]) -> None:
        self._loop, self._close = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            try:
                async with self._host:
                    self._group = group
                    opened.set_result(None)
                    await self._close.wait()
            except Exception as error:  # noqa: BLE001 - it goes to whoever opens or closes the host
                self._failure = error
            self._group = None
            for task in self._tasks:
                task.cancel()  # it waits for something that a closed host will never do

    # ---- what can be asked

    @property
    def status(self) -> HostStatus:
        """Where the host is: starting, recovering, ready, draining."""
        return self._host.status

    @property
    def residencies(self) -> Mapping[str, int]:
        """Why the host can't be settled yet: how many there are of each label."""
        return self._call(lambda: self._host.residencies)

    @property
    def swept(self) -> tuple[RunView, ...]:
        """Runs of dead hosts that were ended when this one opened."""
        return self._host.swept

    def start(
        self,
        request: RunRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        on_event: OnEvent | None = None,
        scope: SyncScope | None = None,
        deadline: datetime | timedelta | None = None,
    ) -> SyncRun:
        """See `remit.Host.start`. `on_event` is called on the host's own thread."""
        run = self._wait(
            lambda: self._host.start(
                request,
                idempotency_key=idempotency_key,
                on_event=on_event,
                scope=_scope_of(scope, self),
                deadline=deadline,
            )
        )
        return SyncRun(self, run)

    def dry_run(self, request: RunRequest | Mapping[str, Any]) -> DryRun:
        """See `remit.Host.dry_run`."""
        return self._wait(lambda: self._host.dry_run(request))

    def run(
        self,
        request: RunRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        on_event: OnEvent | None = None,
        scope: SyncScope | None = None,
        deadline: datetime | timedelta | None = None,
    ) -> RunView:
        """See `remit.Host.run`: starts a run and waits until it has completed.

        Raises:
            KeyboardInterrupt: Ctrl-C came while it waited; the run was cancelled first.
        """
        return self._wait(
            lambda: self._host.run(
                request,
                idempotency_key=idempotency_key,
                on_event=on_event,
                scope=_scope_of(scope, self),
                deadline=deadline,
            ),
            owns=True,
        )

    def find_run(self, run_id: str) -> RunView | None:
        """A run as it stands now; None when there is none of that id."""
        return self._wait(lambda: self._host.find_run(run_id))

    def open_run(self, run_id: str) -> SyncRun:
        """See `remit.Host.open_run`. A callback may call it, too."""
        return SyncRun(self, self._call(lambda: self._host.open_run(run_id)))

    def get_run(self, run_id: str) -> SyncRun:
        """See `remit.Host.get_run`."""
        return SyncRun(self, self._wait(lambda: self._host.get_run(run_id)))

    def cancel(
        self, run_id: str, *, by: CancelBy = "caller", reason: str | None = None, tombstone: bool = False
    ) -> CancelOutcome | Tombstone:
        """See `remit.Host.cancel`."""
        return self._wait(lambda: self._host.cancel(run_id, by=by, reason=reason, tombstone=tombstone))

    def drain(self, *, within_ms: int | None = None) -> None:
        """See `remit.Host.drain`."""
        self._wait(lambda: self._host.drain(within_ms=within_ms))

    # ---- crossing over

    def _wait(
        self,
        make: Callable[[], Coroutine[Any, Any, _Value]],
        *,
        timeout_s: float | None = None,
        owns: bool = False,
    ) -> _Value:
        """Have the host's loop do something, and wait for it.

        Args:
            make: Makes the coroutine; called on the host's thread.
            timeout_s: How long to wait; then what was begun is given up.
            owns: Whether to wait for the end also of what was given up, where this thread was interrupted.

        Raises:
            TimeoutError: It took longer.
        """
        if threading.current_thread() is self._thread:
            raise MisuseError("this would wait for itself: a callback uses what doesn't wait")
        if timeout_s is not None:
            check_length("timeout_s", timeout_s)
            timeout_s = min(timeout_s, threading.TIMEOUT_MAX)  # no lock waits longer: for ever, then
        done: Future[_Value] = Future()
        tasks: list[asyncio.Task[None]] = []
        self._tell(lambda: self._begin(make, done, tasks))
        try:
            return done.result(timeout_s)
        except BaseException:
            if not done.done():
                self._tell(partial(_cancel_all, tasks))
                if owns:
                    _wait_whatever_comes(done)
            raise

    def _begin(
        self,
        make: Callable[[], Coroutine[Any, Any, _Value]],
        done: Future[_Value],
        tasks: list[asyncio.Task[None]],
    ) -> None:
        """Owned by the host's thread, which doesn't end before it."""
        if self._group is None:
            _give_up(done)
            return
        task = self._group.create_task(_hand_over(make, done), name="asked from another thread")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: _give_up(done))
        tasks.append(task)

    def _call(self, function: Callable[[], _Value]) -> _Value:
        """Have the host's thread call something that doesn't wait; from that thread itself, just call it."""
        if threading.current_thread() is self._thread:
            return function()

        async def call() -> _Value:
            return function()

        return self._wait(call)

    def _tell(self, callback: Callable[[], object]) -> None:
        if self._loop is None or self._group is None:
            raise MisuseError("the host isn't open: use `with SyncHost(...)`")
        if self._pid != os.getpid():
            raise MisuseError("a host doesn't live on in a forked process: open another one there")
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            raise MisuseError("the host isn't open: use `with SyncHost(...)`") from None


async def _hand_over(make: Callable[[], Coroutine[Any, Any, _Value]], done: Future[_Value]) -> None:
    """Do it, and tell the other thread what came of it, whatever that is."""
    try:
        value = await make()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
        done.set_exception(error)
    else:
        done.set_result(value)


def _give_up(done: Future[Any]) -> None:
    if not done.done():
        done.set_exception(MisuseError("the host was closed, or this was given up"))


def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _wait_whatever_comes(done: Future[Any]) -> None:
    with contextlib.suppress(Exception):
        done.result()


class SyncRun:
    """`remit.Run` for programs without an event loop."""

    def __init__(self, host: SyncHost, run: Run) -> None:
        self._host = host
        self._run = run
        self.id = run.id

    def __repr__(self) -> str:
        return f"SyncRun({self.id!r})"

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """See `remit.Run.events`. Leaving the loop ends the viewing, never the run."""
        events = self._host._call(lambda: self._run.events(after=after))  # pyright: ignore[reportPrivateUsage] - one module
        return self._iterate(aiter(events))

    def _iterate(self, events: Any) -> Iterator[Event]:
        wait = self._host._wait  # pyright: ignore[reportPrivateUsage] - one module

        async def step() -> Event | None:
            return await anext(events, None)

        try:
            while (event := wait(step)) is not None:
                yield event
        finally:
            with contextlib.suppress(MisuseError):  # the host was closed meanwhile
                wait(events.aclose)

    def view(self) -> RunView:
        """See `remit.Run.view`."""
        return self._host._wait(self._run.view)  # pyright: ignore[reportPrivateUsage] - one module

    def ended(self, *, timeout_s: float | None = None) -> RunView:
        """See `remit.Run.ended`.

        Raises:
            TimeoutError: It hasn't ended in that time; it goes on.
        """
        return self._host._wait(self._run.ended, timeout_s=timeout_s)  # pyright: ignore[reportPrivateUsage] - one module

    def wait(self, *, timeout_s: float | None = None) -> RunView:
        """See `remit.Run.wait`.

        Raises:
            TimeoutError: It hasn't ended in that time; it goes on. (`RunExpired` is one too: then it has.)
        """
        return self._host._wait(self._run.wait, timeout_s=timeout_s)  # pyright: ignore[reportPrivateUsage] - one module

    def cancel(self, *, by: CancelBy = "caller", reason: str | None = None) -> CancelOutcome:
        """See `remit.Run.cancel`."""
        return self._host._wait(lambda: self._run.cancel(by=by, reason=reason))  # pyright: ignore[reportPrivateUsage] - one module

    def deliver(
        self, *, branch: str | None = None, unreviewed: bool = False, allow_protected: bool = False
    ) -> Delivery:
        """See `remit.Run.deliver`."""
        return self._host._wait(  # pyright: ignore[reportPrivateUsage] - one module
            lambda: self._run.deliver(branch=branch, unreviewed=unreviewed, allow_protected=allow_protected)
        )

    def discard(self) -> Delivery:
        """See `remit.Run.discard`."""
        return self._host._wait(self._run.discard)  # pyright: ignore[reportPrivateUsage] - one module

    def cancel_nowait(self, *, by: CancelBy = "caller", reason: str | None = None) -> bool:
        """See `remit.Run.cancel_nowait`. A callback may call it, too."""
        return self._host._call(lambda: self._run.cancel_nowait(by=by, reason=reason))  # pyright: ignore[reportPrivateUsage] - one module

    def acknowledge(self, accepted: bool = True) -> bool:
        """See `remit.Run.acknowledge`. A callback may call it, too."""
        return self._host._call(lambda: self._run.acknowledge(accepted))  # pyright: ignore[reportPrivateUsage] - one module

    def input(self, text: str) -> None:
        """See `remit.Run.input`."""
        self._host._wait(lambda: self._run.input(text))  # pyright: ignore[reportPrivateUsage] - one module


class SyncScope:
    """`remit.Scope` for programs without an event loop; it belongs to the host in which it is first used.

    Args:
        deadline: When it expires: an aware moment, or a length from now; None: never.
    """

    def __init__(self, *, deadline: datetime | timedelta | None = None) -> None:
        self._scope = Scope(deadline=deadline)
        self._host: SyncHost | None = None

    @property
    def aborted(self) -> bool:
        """Whether what is started in it is to end at once."""
        return self._scope.aborted

    def abort(self, reason: str | None = None) -> bool:
        """End what was started in it, and what will be. False: it had ended already. From any thread."""
        if self._host is None:
            return self._scope.abort(reason)
        return self._host._call(lambda: self._scope.abort(reason))  # pyright: ignore[reportPrivateUsage] - one module


def _scope_of(scope: SyncScope | None, host: SyncHost) -> Scope | None:
    if scope is None:
        return None
    if not isinstance(scope, SyncScope):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a scope of a SyncHost is a `SyncScope`", param="scope")
    if scope._host not in (None, host):  # pyright: ignore[reportPrivateUsage] - one module
        raise MisuseError("a scope belongs to the host in which it was first used", param="scope")
    scope._host = host  # pyright: ignore[reportPrivateUsage] - one module
    return scope._scope  # pyright: ignore[reportPrivateUsage] - one module
