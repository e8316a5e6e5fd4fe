"""How this process is set up before it works: open files, the collector, what isn't said aloud."""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import Final

_MOST_FILES: Final = 65_536
"""Enough for 10 000 runs that wait and their viewers; some programs walk through all that they may open."""
_NEW_OBJECTS: Final = 20_000
"""Python's own 700 makes imports and busy hosts look through everything again and again."""


def calm_collector() -> None:
    """Let the collector look more rarely: a run makes few rings, and a tenth of its CPU went into looking.

    Not too rarely: what lived for some seconds before it became a ring, as all of a run does, goes only when
    everything is looked at. That is here after some hundred thousand new objects, which is some ten MiB.
    """
    gc.set_threshold(_NEW_OBJECTS, 5, 3)


def mute_libraries() -> None:
    """Keep Python's warnings off the screen: they speak to who writes a program, and users don't.

    Whoever asks for them (`-W`, `PYTHONWARNINGS`) comes first, since what is appended counts last.
    """
    warnings.simplefilter("ignore", append=True)


def raise_file_limit() -> int | None:
    """Allow this process, and what it starts, as many open files as it may have; returns how many.

    None: this system has no such limit.
    """
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _MOST_FILES if hard == unlimited else min(hard, _MOST_FILES)
    if soft == unlimited or soft >= wanted:
        return _MOST_FILES if soft == unlimited else soft
    with contextlib.suppress(ValueError, OSError):  # some systems have a lower limit that they don't name
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
