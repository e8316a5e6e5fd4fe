"""Toolchains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Toolchains", "find_toolchains"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchains:
    """What commands see beside the system and the tree."""

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    path: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def find_toolchains() -> Toolchains:
    return Toolchains()
