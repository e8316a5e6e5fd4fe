"""Ids are drawn some at once; a forked process draws its own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, sys
from remit.primitives import SystemIds

ids = SystemIds()
ids.new("x")
reading, writing = os.pipe()
pid = os.fork()
made = "\\n".join(ids.new("x")[-16:] for _ in range(200))
if pid == 0:
    os.write(writing, made.encode())
    os._exit(0)
os.waitpid(pid, 0)
os.close(writing)
print(os.read(reading, 100_000).decode())
print(made)
"""


def test_a_forked_process_makes_ids_of_its_own() -> None:
    """No id of a process is made again by one that was forked from it."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(set(made.stdout.split())) == 400
