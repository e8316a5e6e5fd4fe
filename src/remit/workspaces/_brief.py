"""The brief: what a run should know of its workspace. The same bytes for the same base.

It comes first in every prompt. All of it is data from the repository or facts of the node: nothing in it can
change a limit, a tool, the network, the gate or the delivery.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from remit.contract import CheckState
from remit.primitives import clean_text
from remit.workspaces._base import BaseEntry, BasePin, Listing
from remit.workspaces._network import Network, describe_network
from remit.workspaces.keeper._tree import show_path

__all__ = ["Brief", "BriefFacts", "write_brief"]

INSTRUCTION_BYTES = 32_768
_OUTLINE_LINES = 120
_UNCOMMITTED = 40
_LINKS_AT_MOST = 3
_LANGUAGES = 6

ReadBytes = Callable[[str], Awaitable[bytes]]
"""The bytes of a base file, by path; of a link, its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefFacts:
    """What the brief is made of, beside the base itself."""

    subdir: str = ""
    checks: tuple[CheckState, ...] = ()
    network: Network = False
    tools_on_path: tuple[str, ...] = ()
    """Environments that commands see, in words."""
    isolation: str
    sandbox: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The text, and what it was made from."""

    text: str
    instructions: tuple[tuple[str, str], ...]
    """Path and SHA-256 of each instruction file."""

    @property
    def sha256(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


async def write_brief(pin: BasePin, listing: Listing, facts: BriefFacts, *, read: ReadBytes) -> Brief:
    """Write the brief of a base.

    Args:
        pin: The base.
        listing: Its files.
        facts: What else is known.
        read: Reads files of the base.
    """
    instructions = await _find_instructions(listing, facts.subdir, read)
    sections = [
        _workspace(pin, facts),
        _outline(listing),
        _languages(listing),
        _checks(facts.checks),
        _recent(pin),
        _uncommitted(pin),
        *[_instruction(path, data) for path, data in instructions],
    ]
    text, _ = clean_text("\n\n".join(section for section in sections if section) + "\n")
    hashes = tuple((show_path(path), hashlib.sha256(data).hexdigest()) for path, data in instructions)
    return Brief(text, hashes)


def _workspace(pin: BasePin, facts: BriefFacts) -> str:
    folder = f"{pin.root}/{facts.subdir}" if facts.subdir else pin.root
    lines = [
        "# Workspace",
        f"Root: {pin.root}. Working folder: {folder}. Tool paths are relative to the root.",
        f"Base: {pin.id}{f' on {pin.branch}' if pin.branch else ''}. "
        "You work on a private copy; the user's files change only after review.",
        f"Isolation: {facts.isolation}. Sandbox: {facts.sandbox}. "
        f"Network: {describe_network(facts.network)}. "
        "Writable: the workspace, HOME and /tmp. Commands have no terminal and no input.",
    ]
    lines += [f"Available: {tool}" for tool in facts.tools_on_path]
    lines += [f"Note: {note}" for note in pin.notes]
    return "\n".join(lines)


def _outline(listing: Listing) -> str:
    """Folders with how many files they hold, as deep as fits; all files where they are few."""
    paths = sorted(listing)
    if len(paths) <= _OUTLINE_LINES:
        return "\n".join(["# Files", *(show_path(path) for path in paths)]) if paths else ""
    counts: Counter[str] = Counter()
    top: list[str] = []
    for path in paths:
        end = path.find("/")
        if end < 0:
            top.append(show_path(path))
        while end >= 0:
            counts[path[:end]] += 1
            end = path.find("/", end + 1)
    depth = 1
    while sum(folder.count("/") <= depth for folder in counts) + len(top) <= _OUTLINE_LINES and depth < 6:
        depth += 1
    folders = sorted(folder for folder in counts if folder.count("/") < depth)
    lines = [f"{show_path(folder)}/ ({counts[folder]} files)" for folder in folders]
    shown = (lines + top)[:_OUTLINE_LINES]
    left = len(lines) + len(top) - len(shown)
    more = [f"... and {left} more"] if left else []
    return "\n".join([f"# Files ({len(paths)})", *shown, *more])


_LANGUAGE_NAMES = {
    ".py": "Python",
    ".pyi": "Python",
    ".js": "JavaScript",
    ".mjs": "JavaScript",
    ".jsx": "JavaScript",
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".go": "Go",
    ".rs": "Rust",
    ".java": "Java",
    ".kt": "Kotlin",
    ".c": "C",
    ".h": "C",
    ".cc": "C++",
    ".cpp": "C++",
    ".hpp": "C++",
    ".cs": "C#",
    ".rb": "Ruby",
    ".php": "PHP",
    ".swift": "Swift",
    ".scala": "Scala",
    ".sh": "Shell",
    ".sql": "SQL",
    ".html": "HTML",
    ".css": "CSS",
    ".lua": "Lua",
    ".r": "R",
    ".jl": "Julia",
    ".ex": "Elixir",
    ".exs": "Elixir",
    ".hs": "Haskell",
    ".zig": "Zig",
}


def _languages(listing: Listing) -> str:
    counts = Counter(
        language
        for path in listing
        if (language := _LANGUAGE_NAMES.get(os.path.splitext(path)[1].lower())) is not None
    )
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_LANGUAGES]
    named = ", ".join(f"{language} ({count} files)" for language, count in ranked)
    return f"# Languages\n{named}" if named else ""


def _checks(checks: Sequence[CheckState]) -> str:
    if not checks:
        return "# Checks\nNone were found. The result is compared with nothing."
    lines = ["# Checks", "After review these are run on the result, and compared with the base:"]
    for check in checks:
        state = check.problem or ("wasn't run" if check.base_exit is None else f"exits {check.base_exit}")
        lines.append(f"{check.id}: `{check.command}` ({check.why}); on the base: {state}")
    return "\n".join(lines)


def _recent(pin: BasePin) -> str:
    return "\n".join(["# Recent commits", *pin.recent]) if pin.recent else ""


def _uncommitted(pin: BasePin) -> str:
    if not pin.uncommitted:
        return ""
    shown = [f"{entry.state}: {entry.path}" for entry in pin.uncommitted[:_UNCOMMITTED]]
    left = len(pin.uncommitted) - len(shown)
    more = [f"... and {left} more"] if left else []
    return "\n".join(["# Uncommitted work, part of the base", *shown, *more])


def _instruction(path: str, data: bytes) -> str:
    name = show_path(path)
    text = data.decode("utf-8", "replace").strip("\n")
    return f"# Instructions of the repository: {name}\n{text}\n(end of {name})"


async def _find_instructions(listing: Listing, subdir: str, read: ReadBytes) -> list[tuple[str, bytes]]:
    """AGENTS.md from the root to the working folder, else CLAUDE.md; together bounded, the nearest kept."""
    parts = [part for part in subdir.split("/") if part]
    folders = ["/".join(parts[:length]) for length in range(len(parts) + 1)]
    for name in ("AGENTS.md", "CLAUDE.md"):
        paths = [f"{folder}/{name}" if folder else name for folder in folders]
        found = [(path, data) for path in paths if (data := await _read(listing, path, read)) is not None]
        if found:
            return _bounded(found)
    return []


async def _read(listing: Listing, path: str, read: ReadBytes) -> bytes | None:
    """A file of the base; a link is followed while it stays among the base's files."""
    for _ in range(_LINKS_AT_MOST):
        entry: BaseEntry | None = listing.get(path)
        if entry is None:
            return None
        data = await read(path)
        if entry.mode != "120000":
            return data
        path = _resolve(path, data.decode("utf-8", "surrogateescape"))
    return None


def _resolve(path: str, target: str) -> str:
    parts = [] if target.startswith("/") else path.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1] if parts else ["/"]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _bounded(found: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    left = INSTRUCTION_BYTES
    kept: list[tuple[str, bytes]] = []
    for path, data in reversed(found):  # the nearest counts most
        if len(data) > left:
            data = data[:left].rsplit(b"\n", 1)[0] + b"\n(cut here)"
        left = max(0, left - len(data))
        kept.append((path, data))
    return kept[::-1]
