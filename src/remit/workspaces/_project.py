"""A folder that may be a project: its files' names, and a way to read some of them."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["CanImport", "HasProgram", "Project", "ReadText"]

ReadText = Callable[[str], Awaitable[str]]
"""The text of a base file, by path; empty where it can't be read."""
CanImport = Callable[[str, str], Awaitable[str | None]]
"""(module, folder) -> None when the interpreter in the sandbox can import it there, else why not."""
HasProgram = Callable[[str, str], Awaitable[bool]]
"""(name, folder) -> whether commands there can start a program of that name."""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder that may be a project."""

    folder: str
    """From the root; empty: the root itself."""
    names: frozenset[str]
    paths: tuple[str, ...]
    """Its files, from the folder."""
    read_text: ReadText

    @classmethod
    def at(cls, folder: str, paths: Sequence[str], read_text: ReadText) -> Project:
        """The project in a folder of a tree."""
        prefix = f"{folder}/" if folder else ""
        inside = tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return cls(folder, frozenset(inside), inside, read_text)

    async def read(self, name: str) -> str:
        """The text of one of its files; empty where it isn't there."""
        if name not in self.names:
            return ""
        return await self.read_text(f"{self.folder}/{name}" if self.folder else name)

    async def read_json(self, name: str) -> dict[str, Any]:
        """A file as a JSON object; empty where it isn't there or is none."""
        try:
            value = json.loads(await self.read(name))
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    async def matches(self, name: str, pattern: str) -> bool:
        """Whether a line of a file matches."""
        return re.search(pattern, await self.read(name), re.MULTILINE) is not None

    def find(self, *names: str) -> str | None:
        """The first of these files that is there."""
        return next((name for name in names if name in self.names), None)
