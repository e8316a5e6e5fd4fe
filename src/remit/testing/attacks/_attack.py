"""The form of an attack: a script, and a way to see that it got through.

The scripts run inside a sandbox, where none may get through, and (where that harms nobody) outside of one,
where each must: an attack that fails everywhere proves nothing. Words in braces are filled in by
the world that they are tried in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Evidence = Literal[
    "says", "outside_file", "victim_file", "root_file", "tool_file", "victim_dead", "heard", "daemon"
]
"""`says`: the script prints BREACH when it saw the effect itself. The others are looked at from outside:
a new file in the outside folder, a changed file there, in the user's tree, or among the tools, the victim
process gone, a listener that was reached, a process that lives on."""

Control = Literal["both", "root", "user", "none"]
"""For whom the attack must get through outside of a sandbox; `none`: it would harm the machine, or needs what
this machine may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attempt."""

    name: str
    script: str
    evidence: Evidence = "says"
    language: Literal["sh", "python"] = "sh"
    control: Control = "both"
    architectures: tuple[str, ...] = ("x86_64", "aarch64")


_LIBC: Final = """
import ctypes, os, sys, struct, socket, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
arm = platform.machine() == "aarch64"
def call(x86, aarch, *arguments):
    number = aarch if arm else x86
    wide = [a if isinstance(a, (bytes, ctypes.Array, ctypes.Structure)) or a is None else ctypes.c_long(a)
            for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return result, (0 if result >= 0 else ctypes.get_errno())
def breach(*details):
    print("BREACH", *details)
"""


def sh(name: str, script: str, **options: Any) -> Attack:
    """An attack in a shell."""
    return Attack(name=name, script=script, **options)


def py(name: str, script: str, **options: Any) -> Attack:
    """An attack in Python, with a few words for system calls."""
    return Attack(name=name, script=_LIBC + script, language="python", **options)
