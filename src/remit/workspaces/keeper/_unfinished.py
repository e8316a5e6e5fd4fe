"""The names of files that are being written beside their place, and are part of nothing."""

from __future__ import annotations

import os
import re
from typing import Final

_NAME: Final = re.compile(r"\.remit-write-[0-9a-f]{16}\Z")


def unfinished_name() -> str:
    """A fresh name for a file that isn't finished yet."""
    return f".remit-write-{os.urandom(8).hex()}"


def is_unfinished_name(name: str) -> bool:
    """Whether a file is such a one; a write that was killed may leave it behind."""
    return name.startswith(".remit-") and _NAME.match(name) is not None
