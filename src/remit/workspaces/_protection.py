"""Paths that a delivery protects, and paths that a workspace froze. Globs are matched part by part.

A pattern without a slash matches a name at any depth; one with a slash is anchored at the root. `**` is any
number of parts, also none: `.vscode/**` matches `.vscode` itself too, since a link may take a folder's
place.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["PROTECTED", "ignores_case", "matching_paths"]

PROTECTED = (
    # git's own folder is never part of a patch; it stands here in case something lets it through
    "**/.git/**",
    # what runs on a machine of somebody else's
    ".github/workflows/**",
    ".github/actions/**",
    ".gitlab-ci.yml",
    ".gitlab/ci/**",
    ".circleci/**",
    ".buildkite/**",
    ".forgejo/workflows/**",
    ".gitea/workflows/**",
    ".woodpecker/**",
    ".woodpecker.y*ml",
    ".drone.y*ml",
    ".travis.yml",
    ".appveyor.yml",
    "appveyor.yml",
    ".cirrus.yml",
    "azure-pipelines.y*ml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    # what runs on the user's own machine, unasked
    ".envrc",
    "**/.vscode/**",
    "**/.idea/**",
    "**/.devcontainer/**",
    "**/.githooks/**",
    "**/.husky/**",
    ".pre-commit-config.y*ml",
    "lefthook.y*ml",
    ".lefthook.y*ml",
    # what steers this and other agents
    "remit.toml",
    "AGENTS.md",
    "CLAUDE.md",
)
"""Protected unless the workspace says otherwise: flagged, and applied only when that was allowed."""


def matching_paths(paths: Iterable[str], patterns: Sequence[str], *, ignore_case: bool) -> tuple[str, ...]:
    """The paths that any of the patterns matches, or that lie below one that it matches; in their order."""
    compiled = [_compile(pattern, ignore_case) for pattern in patterns]
    return tuple(
        path for path in paths if any(pattern.fullmatch(_folded(path, ignore_case)) for pattern in compiled)
    )


def ignores_case(root: Path) -> bool:
    """Whether the file system under a folder takes `A` and `a` for the same name."""
    try:
        names = [root.name, *sorted(os.listdir(root))[:50]]
    except OSError:
        return False
    for parent, name in zip([root.parent, *[root] * len(names)], names, strict=False):
        if name.swapcase() != name and name.swapcase() not in names[1:]:
            return _same(parent / name, parent / name.swapcase())
    return False


def _same(first: Path, second: Path) -> bool:
    try:
        return os.path.samestat(first.lstat(), second.lstat())
    except OSError:
        return False


@lru_cache(maxsize=512)
def _compile(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    parts = [part for part in _folded(pattern, ignore_case).split("/") if part not in ("", ".")]
    if "/" not in pattern.rstrip("/"):
        parts.insert(0, "**")
    while parts[-1:] == ["**"]:
        parts.pop()
    inner = "".join("(?:[^/]+/)*" if part == "**" else _translate(part) + "/" for part in parts)
    return re.compile(f"{inner.removesuffix('/')}(?:/.*)?" if parts else ".*", re.DOTALL)


def _translate(part: str) -> str:
    """One part of a glob as a regular expression."""
    return "".join(
        _translate_piece(piece) for piece in re.findall(r"\[[!^]?\]?[^\]]*\]|\*+|.", part, re.DOTALL)
    )


def _translate_piece(piece: str) -> str:
    if piece.startswith("*"):
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if len(piece) > 2 and piece.startswith("["):
        negated = piece[1] in "!^"
        inside = re.escape(piece[2 if negated else 1 : -1]).replace(r"\-", "-")
        return f"(?!/)[{'^' if negated else ''}{inside}]"
    return re.escape(piece)


def _folded(text: str, ignore_case: bool) -> str:
    return unicodedata.normalize("NFC", text).casefold() if ignore_case else text
