"""File names as patches have them: git quotes one that isn't plain ASCII, byte by byte."""

from __future__ import annotations

import re
from typing import Final

_LAST_QUOTED: Final = re.compile(r'(?:^| )("(?:[^"\\]|\\.)*")\Z')
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS: Final = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def read_patch_name(name: str) -> str:
    """A name out of a patch, without git's quotes; bytes that aren't UTF-8 become U+FFFD.

    It is what the file is called, whatever that does to a terminal or a page: who shows it cleans it.
    """
    if len(name) < 2 or not name.startswith('"') or not name.endswith('"'):
        return name
    return _ESCAPE.sub(_byte, name[1:-1].encode("utf-8", "replace")).decode("utf-8", "replace")


def _byte(found: re.Match[bytes]) -> bytes:
    said = found[1]
    return bytes((int(said, 8) & 0xFF,)) if len(said) == 3 else _LETTERS.get(said, said)


def patched_path(header: str) -> str:
    """The new path out of `diff --git a/OLD b/NEW`; empty: there is none."""
    rest = header.removeprefix("diff --git ")
    if quoted := _LAST_QUOTED.search(rest):
        return read_patch_name(quoted[1]).removeprefix("b/")
    half = (len(rest) - 1) // 2
    if rest[:half].removeprefix("a/") == rest[half + 1 :].removeprefix("b/"):
        return rest[half + 1 :].removeprefix("b/")
    return rest.rpartition(" b/")[2]
