"""The commands of one checkout: their output, their time, and how they are stopped."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from remit.workspaces.keeper._confinement import Confined, Ending, Streams, WhenEnded
from remit.workspaces.keeper._loop import Loop, Timer
from remit.workspaces.keeper._output import BoundedOutput, HeadTail
from remit.workspaces.keeper._plan import CommandOrder

_CHUNK_BYTES: Final = 65_536
_DRAIN_S: Final = 0.25
"""How long a pipe may stay open after the command's last process has ended. Only a process of another command
that was handed the pipe can hold it."""
_STUCK_S: Final = 5.0
"""After KILL: how long a process may take to go before the result says that it hasn't."""
MAX_KEPT_BYTES: Final = 2 * 1024 * 1024
"""Kept per stream at most, so that a result always fits into one frame."""

Reason = Literal["timed_out", "cancelled"]


@dataclass(slots=True)
class Stop:
    """Somebody waits for the command to be gone."""

    asked_at_s: float
    pids: tuple[int, ...]
    tell: Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Stream:
    """One of a command's two outputs."""

    handle: int
    kept: HeadTail
    source: int


@dataclass(slots=True)
class _State:
    """What has happened to the command so far."""

    reason: Reason | None = None
    ending: Ending | None = None
    kill_sent: bool = False
    stops: list[Stop] = field(default_factory=list[Stop])
    timers: list[Timer] = field(default_factory=list[Timer])


class Command:
    """One command from its start to its result. `when_done` is called exactly once."""

    def __init__(
        self,
        loop: Loop,
        order: CommandOrder,
        *,
        confine: Callable[[WhenEnded], Confined],
        when_done: Callable[[Command, dict[str, Any]], None],
        send_output: Callable[[bytes], None] | None,
        grace_s: float,
    ) -> None:
        self.order = order
        self._loop = loop
        self._when_done = when_done
        self._send_output = send_output
        self._grace_s = grace_s
        self._state = _State()
        self._started_at_s = loop.now()
        kept_bytes = max(1, min(order.max_output_bytes, MAX_KEPT_BYTES))
        self._text = BoundedOutput(kept_bytes)
        self._streams = [Stream(-1, HeadTail(kept_bytes), source) for source in (1, 2)]
        self._processes = confine(self._processes_ended)

    def start(self) -> None:
        """Starts the command; a start that fails is a result like any other."""
        writing: list[int] = []
        stdin = -1
        try:
            stdin = self._open_stdin()
            for stream in self._streams:
                stream.handle, end = os.pipe2(os.O_CLOEXEC)
                writing.append(end)
                os.set_blocking(stream.handle, False)
            self._processes.start(Streams(stdin=stdin, stdout=writing[0], stderr=writing[1]))
        except (OSError, ValueError) as error:  # ValueError: a NUL, or what no file name can hold
            self._processes_ended(Ending(problem=f"it couldn't be started: {error}"))
        finally:
            for handle in (stdin, *writing):
                if handle >= 0:
                    os.close(handle)
        for stream in self._streams:
            self._watch(stream)
        if self._state.ending is None:
            self._after(self.order.timeout_ms / 1000, lambda: self._stop_for("timed_out", self._grace_s))

    def _open_stdin(self) -> int:
        """What the command reads from: nothing."""
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    # ---- output

    def _watch(self, stream: Stream) -> None:
        if stream.handle >= 0:
            self._loop.watch(stream.handle, readable=lambda: self._read(stream))

    def _read(self, stream: Stream) -> None:
        try:
            data = os.read(stream.handle, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close_stream(stream)
            self._finish_when_complete()
            return
        stream.kept.feed(data)
        self._text.feed(data, source=stream.source)
        if self._send_output is not None:
            self._send_output(data)

    def _close_stream(self, stream: Stream) -> None:
        if stream.handle >= 0:
            self._loop.unwatch(stream.handle)
            os.close(stream.handle)
            stream.handle = -1

    def pids(self) -> tuple[int, ...]:
        """Every process of it that runs now."""
        return self._processes.pids()

    def own_children(self) -> tuple[int, ...]:
        """The keeper's own children among what holds it."""
        return self._processes.own_children()

    # ---- stopping

    def stop(self, *, grace_s: float, tell: Callable[[dict[str, Any]], None]) -> None:
        """Asks the command to end, kills it after the grace, and tells once it's gone."""
        self._state.stops.append(Stop(self._loop.now(), self._processes.pids(), tell))
        self._stop_for("cancelled", grace_s)

    def _stop_for(self, reason: Reason, grace_s: float) -> None:
        if self._state.ending is not None:
            return
        first = self._state.reason is None
        self._state.reason = self._state.reason or reason
        if grace_s <= 0:
            self._kill()
            return
        if first:
            self._processes.ask_to_end()
        self._after(grace_s, self._kill)

    def _kill(self) -> None:
        if self._state.ending is not None or self._state.kill_sent:
            return
        self._state.kill_sent = True
        self._processes.end()
        self._after(_STUCK_S, self._give_up)

    def _give_up(self) -> None:
        """A process that can't be killed (stuck in the kernel) must not hold up the answer for ever."""
        if self._state.ending is None:
            pids = ", ".join(map(str, self._processes.pids())) or "unknown"
            self._processes_ended(Ending(problem=f"it was killed but hasn't gone yet (pids {pids})"))

    def _after(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._state.timers.append(self._loop.after(delay_s, callback))

    # ---- ending

    def _processes_ended(self, ending: Ending) -> None:
        if self._state.ending is not None:
            return
        self._state.ending = ending
        for timer in self._state.timers:
            timer.cancel()
        self._after(_DRAIN_S, self._stop_draining)
        self._loop.after(0, self._finish_when_complete)

    def _stop_draining(self) -> None:
        for stream in self._streams:
            self._close_stream(stream)
        self._finish_when_complete()

    def _finish_when_complete(self) -> None:
        ending = self._state.ending
        if ending is None or self._when_done is None or any(stream.handle >= 0 for stream in self._streams):
            return
        for timer in self._state.timers:
            timer.cancel()
        when_done, self._when_done = self._when_done, None
        when_done(self, self._result(ending))
        for stop in self._state.stops:
            stop.tell(self._stopped(stop))

    def _stopped(self, stop: Stop) -> dict[str, Any]:
        return {
            "call_id": self.order.call_id,
            "label": self.order.label,
            "how": "kill" if self._state.kill_sent else "term",
            "ms": _ms(self._loop.now() - stop.asked_at_s),
            "pids": list(stop.pids),
        }

    def _result(self, ending: Ending) -> dict[str, Any]:
        out, err = (stream.kept for stream in self._streams)
        return {
            "status": self._status(ending),
            "exit_code": None if ending.problem or ending.signal is not None else ending.exit_code,
            "signal": ending.signal,
            "duration_ms": _ms(self._loop.now() - self._started_at_s),
            "stdout": base64.b64encode(out.raw()).decode("ascii"),
            "stderr": base64.b64encode(err.raw()).decode("ascii"),
            "stdout_total_bytes": out.total_bytes,
            "stderr_total_bytes": err.total_bytes,
            "text": self._text.text(),
            "truncated": self._text.truncated,
            "leftovers": list(ending.leftovers),
            "denied": list(ending.denied),
            "message": self._message(ending),
        }

    def _status(self, ending: Ending) -> str:
        if self._state.reason is not None:
            return self._state.reason
        if ending.problem is not None:
            return "failed_to_start"
        return "signalled" if ending.signal is not None else "exited"

    def _message(self, ending: Ending) -> str | None:
        if ending.problem is not None:
            said = self._streams[1].kept.raw().decode("utf-8", "replace").strip()
            return f"{ending.problem}: {said}" if said and self._state.reason is None else ending.problem
        if self._state.reason == "timed_out":
            return f"stopped after {self.order.timeout_ms} ms"
        return None


def cpu_seconds(order: CommandOrder) -> int:
    """CPU time that one process may use: what all cores can give within the command's time, and a little."""
    return math.ceil(order.timeout_ms / 1000 * (os.cpu_count() or 1)) + 10


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
