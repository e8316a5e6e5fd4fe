"""The sandbox profile for macOS. UNTESTED: written from the system's own profiles, never run on a Mac.

Checkouts need Linux so far, so nothing uses it yet; `doctor` says so. It is here so that whoever brings
checkouts to macOS starts from the same view as bubblewrap's: everything denied but what is named. Paths must
be real ones (`/private/tmp`, not `/tmp`): the system compares them after links.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["seatbelt_profile"]

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/System", "/Library/Apple", "/private/etc/ssl", "/opt/homebrew")
_FILES: Final = ("/private/etc/hosts", "/private/etc/passwd", "/private/var/db/timezone", "/dev/random")
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/tty")


def seatbelt_profile(
    *, writable: Iterable[Path], readable: Iterable[Path], masked: Iterable[Path], network: bool
) -> str:
    """What `sandbox-exec -p` takes.

    Args:
        writable: The checkout, its home folder, its folder for temporary files.
        readable: Toolchains.
        masked: Credential files inside those; the last word holds.
        network: Whether anything outside is reached.

    Raises:
        ValueError: A path isn't absolute and real, or can't be written in a profile.
    """
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow file-read-metadata (subpath "/"))',
        _rule("allow file-read*", "subpath", [*map(Path, _SYSTEM), *readable]),
        _rule("allow file-read*", "literal", map(Path, _FILES)),
        _rule("allow file-read* file-write*", "literal", map(Path, _DEVICES)),
        _rule("allow file-read* file-write*", "subpath", writable),
        _rule("deny file-read* file-write*", "subpath", masked),
        "(allow network*)" if network else "(deny network*)",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _rule(action: str, match: str, paths: Iterable[Path]) -> str:
    parts = [f"({match} {_quoted(path)})" for path in paths]
    return f"({action} {' '.join(parts)})" if parts else ""


def _quoted(path: Path) -> str:
    text = str(path)
    if not path.is_absolute() or os.path.normpath(text) != text:
        raise ValueError(f"{text!r} isn't an absolute path without links and steps")
    if any(not char.isprintable() for char in text):
        raise ValueError(f"{text!r} can't be written in a profile")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
