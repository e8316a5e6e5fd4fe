"""Ctrl-C, SIGTERM and SIGHUP while a run goes on: the first one asks, the second one ends everything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from remit.cli._words import EXIT_INTERRUPTED

_EXIT_CODES: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 143, signal.SIGHUP: 129}
_SHOW_CURSOR: Final = "\x1b[?25h"


class Signals:
    """What this process was told by signals.

    Before a run is there the first signal calls `stop`; from then on whatever `stop` was replaced by. A
    second one kills the process that everything else hangs on, and ends this one at once.
    """

    def __init__(self, *, stop: Callable[[], object]) -> None:
        self.stop = stop
        self.received: signal.Signals | None = None
        self.ended = False
        """Whether what was asked for has its result: from then on one signal more is without effect."""
        self.zygote_pid: Callable[[], int | None] = lambda: None
        """The process whose death takes every checkout's processes with it."""

    @property
    def exit_code(self) -> int:
        """What to exit with for the signal that came."""
        return EXIT_INTERRUPTED if self.received is None else _EXIT_CODES[self.received]

    @property
    def name(self) -> str:
        """The signal as a person knows it."""
        return "Ctrl-C" if self.received in (None, signal.SIGINT) else self.received.name

    def tell(self, number: signal.Signals) -> None:
        """A signal came."""
        if self.received is not None:
            self._end_at_once()
        self.received = number
        self.stop()

    def _end_at_once(self) -> None:
        pid = self.zygote_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                sys.stderr.write(_SHOW_CURSOR)
            sys.stderr.write("\nremit: ended at once; the next run settles what is left\n")
            sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)

    @contextmanager
    def handled(self) -> Generator[None]:
        """Take the signals for the length of a block, and where all has ended by then, beyond it.

        One that was ignored by who started us stays so.
        """
        loop = asyncio.get_running_loop()
        taken: list[signal.Signals] = []
        for number in _EXIT_CODES:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.tell, number)
                taken.append(number)
        try:
            yield
        finally:
            # In between a signal has its default action, so none may come.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
            for number in taken:
                loop.remove_signal_handler(number)
                if self.ended:
                    signal.signal(number, _Once())
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Once:
    """What becomes of a signal while a result is handed over: the first changes nothing, a second ends it."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, number: int, _: object) -> None:
        if self._told:
            os._exit(_EXIT_CODES[signal.Signals(number)])
        self._told = True


@contextmanager
def held() -> Generator[None]:
    """For the length of a block, or of a function, the first signal changes nothing: a tree is being changed.

    Ended in the middle it would be half changed until the next command. One that was ignored stays so.
    """
    before = {number: signal.getsignal(number) for number in _EXIT_CODES}
    once = _Once()
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def by_default() -> Generator[None]:
    """For the length of a block each signal does what it does anywhere: while a person is asked something."""
    before = {number: signal.getsignal(number) for number in _EXIT_CODES}
    for number, handler in before.items():
        if isinstance(handler, _Once):
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
