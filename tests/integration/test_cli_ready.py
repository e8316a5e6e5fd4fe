"""How a process of the command line is set up before it works."""

from __future__ import annotations

import subprocess
import sys

_LIMIT = """
import resource
from remit.cli._ready import raise_file_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))
said = raise_file_limit()
soft, now = resource.getrlimit(resource.RLIMIT_NOFILE)
assert now == hard and said == soft and soft > 64, (said, soft, now, hard)
assert raise_file_limit() == soft
"""


def test_a_host_may_open_what_the_system_allows() -> None:
    """The soft limit of open files, which is low on many systems, doesn't bound how many runs may wait."""
    subprocess.run([sys.executable, "-c", _LIMIT], check=True, timeout=60)
