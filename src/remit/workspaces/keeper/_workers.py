"""File operations, each in a forked worker: a slow one holds up nothing, an endless one can be killed.

A worker is forked from the keeper, so it sees the same mounts; it is used again for the next operation.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from remit.workspaces.keeper import _syscalls
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._protocol import Decoder, FrameTooLarge, encode
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from

Operation = Callable[[int, dict[str, Any]], dict[str, Any]]
Reply = Callable[[dict[str, Any]], None]

_MAX_WORKERS: Final = 8
_MAX_IDLE: Final = 2
_READ_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True)
class Job:
    """One operation to do."""

    number: int
    operation: str
    arguments: dict[str, Any]
    reply: Reply


class _Worker:
    """One forked process and the job it has."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.decoder = Decoder()
        self.outgoing = bytearray()
        self.job: Job | None = None


class Workers:
    """Gives operations to workers, at most so many at once; the others wait their turn."""

    def __init__(self, loop: Loop, *, operations: Mapping[str, Operation], root_fd: int) -> None:
        self._loop = loop
        self._operations = operations
        self._root_fd = root_fd
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._waiting: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Does the job when a worker is free."""
        if job.operation not in self._operations:
            message = f"{job.operation}: no such operation"
            job.reply(_failure("invalid_arguments", message))
            return
        self._waiting.append(job)
        self._next()

    def own_children(self) -> tuple[int, ...]:
        """The workers' process ids."""
        return tuple(worker.pid for worker in (*self._busy, *self._idle))

    def cancel(self, number: int) -> bool:
        """Kills the worker that does this job, or takes the job out of the queue; False: it's done."""
        for job in self._waiting:
            if job.number == number:
                self._waiting.remove(job)
                job.reply(_failure("cancelled", "cancelled before it started"))
                return True
        for worker in self._busy:
            if worker.job is not None and worker.job.number == number:
                self._end(worker, _failure("cancelled", "cancelled"))
                return True
        return False

    def close(self) -> None:
        """Ends all workers; what they were doing is answered as cancelled."""
        while self._waiting:
            self._waiting.popleft().reply(_failure("cancelled", "the checkout is being closed"))
        for worker in [*self._busy, *self._idle]:
            self._end(worker, _failure("cancelled", "the checkout is being closed"))

    def _next(self) -> None:
        while self._waiting and len(self._busy) < _MAX_WORKERS:
            try:
                worker = self._idle.pop() if self._idle else self._fork()
            except OSError as error:
                self._waiting.popleft().reply(_failure("failed", f"no worker could be started: {error}"))
                continue
            self._give(worker, self._waiting.popleft())

    def _give(self, worker: _Worker, job: Job) -> None:
        worker.job = job
        self._busy.append(worker)
        worker.outgoing += encode(job.number, {"operation": job.operation, "arguments": job.arguments})
        self._write(worker)

    def _write(self, worker: _Worker) -> None:
        with suppress(BlockingIOError):
            while worker.outgoing:
                try:
                    sent = worker.link.send(worker.outgoing)
                except BrokenPipeError:  # the reader is told of the worker's end
                    worker.outgoing.clear()
                    break
                del worker.outgoing[:sent]
        writable = (lambda: self._write(worker)) if worker.outgoing else None
        self._loop.watch(worker.link.fileno(), readable=lambda: self._read(worker), writable=writable)

    def _read(self, worker: _Worker) -> None:
        try:
            data = worker.link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(worker, _failure("failed", "the process doing it died"))
            return
        for frame in worker.decoder.feed(data):
            job, worker.job = worker.job, None
            self._busy.remove(worker)
            self._idle.append(worker)
            if job is not None:
                job.reply(frame.body or _failure("too_large", "the result is too large to send"))
        while len(self._idle) > _MAX_IDLE:
            self._end(self._idle[0], {})
        self._next()

    def _end(self, worker: _Worker, answer: dict[str, Any]) -> None:
        for group in (self._busy, self._idle):
            if worker in group:
                group.remove(worker)
        self._loop.unwatch(worker.link.fileno())
        worker.link.close()
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
        if worker.job is not None:
            job, worker.job = worker.job, None
            job.reply(answer)
        self._next()

    def _fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            _serve(theirs, keeper=keeper, root_fd=self._root_fd, operations=self._operations)
        theirs.close()
        ours.setblocking(False)
        worker = _Worker(pid, ours)
        self._loop.watch(ours.fileno(), readable=lambda: self._read(worker))
        return worker


def _serve(
    link: socket.socket, *, keeper: int, root_fd: int, operations: Mapping[str, Operation]
) -> NoReturn:
    """The worker's whole life; never returns into the keeper's code."""
    code = 1
    try:
        _syscalls.die_with_parent(signal.SIGKILL, parent=keeper)
        close_all_but({0, 1, 2, link.fileno(), root_fd})
        decoder = Decoder()
        while data := link.recv(_READ_BYTES):
            for frame in decoder.feed(data):
                link.sendall(_answer(frame.number, frame.body or {}, root_fd=root_fd, operations=operations))
        code = 0
    except (OSError, KeyboardInterrupt):
        pass
    finally:
        sys.stderr.flush()
        os._exit(code)


def _answer(number: int, body: dict[str, Any], *, root_fd: int, operations: Mapping[str, Operation]) -> bytes:
    answer = perform(operations[body["operation"]], root_fd, body["arguments"])
    try:
        return encode(number, answer)
    except FrameTooLarge as error:
        return encode(number, _failure("too_large", str(error)))


def perform(operation: Operation, root_fd: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Does one operation; every way in which it may fail is an answer."""
    try:
        return {"result": operation(root_fd, arguments)}
    except OperationRefused as refusal:
        return _failure(refusal.status, refusal.message)
    except OSError as error:
        refusal = refusal_from(error, path="")
        return _failure(refusal.status, refusal.message)
    except (MemoryError, RecursionError):
        return _failure("too_large", "it needs more memory than there is")
    except Exception as error:  # noqa: BLE001  a fault in one operation must not end the checkout
        return _failure("failed", f"{type(error).__name__}: {error}")


def _failure(status: str, message: str) -> dict[str, Any]:
    return {"error": {"status": status, "message": message}}


def close_all_but(kept: set[int]) -> None:
    """Closes every descriptor of this process but these."""
    for name in os.listdir("/proc/self/fd"):
        handle = int(name)
        if handle not in kept:
            with suppress(OSError):
                os.close(handle)
