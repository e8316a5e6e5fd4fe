"""What a host's process holds, for Prometheus: memory, descriptors, threads, asyncio tasks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from pathlib import Path

__all__ = ["process_gauges"]

_SELF = Path("/proc/self")


def process_gauges() -> Mapping[str, int]:
    """Gauges by name, where they are known; those of `/proc` are left out on systems without it.

    Names are the ones that Prometheus's own libraries use, so that ready-made panels show them.
    """
    gauges = {"remit_tasks": len(asyncio.all_tasks()), "process_threads": threading.active_count()}
    try:
        # The folder's own descriptor is among them while it is read.
        gauges["process_open_fds"] = len(os.listdir(_SELF / "fd")) - 1
        pages = int((_SELF / "statm").read_text().split()[1])
        gauges["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    return gauges
