"""What of a patch a person should look at twice: pure, from names, modes and kinds of change.

protected:PATH        delivery asks for a person's word
frozen:PATH           no patch may touch it
moved:PATH            the user's tree had changed there already
tests:PATH            a test was changed; `tests-removed:PATH` one is gone
dependencies:PATH     what the project is built from; `lock:PATH` its lock file
binary:PATH           bytes that no diff shows
mode:PATH OLD>NEW     an executable bit; `link:PATH` a link, new or changed
skipped:, ignored:    what changed and isn't part of the patch
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from remit.workspaces._changes import Change
from remit.workspaces._patch import PathCounts
from remit.workspaces.keeper._tree import show_path

__all__ = ["flags_of_changes"]

_SHOWN_EACH = 20
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testing"})
_TEST_NAME = re.compile(
    r"(?:test_.*|.*_test|conftest)\.py|.*[._-](?:test|spec)\.[cm]?[jt]sx?|.*_test\.(?:go|rb|exs|dart|cc|cpp)"
    r"|.*_spec\.rb|.*Tests?\.(?:java|kt|cs|swift|php|scala)"
)
_DEPENDENCIES = re.compile(
    r"pyproject\.toml|setup\.(?:py|cfg)|(?:.*-)?requirements(?:[-_.].*)?\.(?:txt|in)|Pipfile|environment\.ya?ml"
    r"|package\.json|pnpm-workspace\.yaml|Cargo\.toml|go\.mod|Gemfile|.*\.gemspec|composer\.json|pom\.xml"
    r"|(?:build|settings)\.gradle(?:\.kts)?|libs\.versions\.toml|.*\.csproj|packages\.config|Package\.swift"
    r"|pubspec\.yaml|mix\.exs|deno\.jsonc?"
)
_LOCKS = re.compile(
    r"poetry\.lock|uv\.lock|pdm\.lock|Pipfile\.lock|pylock(?:\..*)?\.toml|package-lock\.json"
    r"|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|Cargo\.lock|go\.sum|Gemfile\.lock"
    r"|composer\.lock|gradle\.lockfile|packages\.lock\.json|Package\.resolved|pubspec\.lock|mix\.lock|deno\.lock"
    r"|flake\.lock"
)


def flags_of_changes(changes: Sequence[Change], counts: Mapping[str, PathCounts]) -> tuple[str, ...]:
    """The flags of the changes themselves, by kind and then by path; each kind bounded.

    Args:
        changes: What differs from the base.
        counts: What the patch says of each path.
    """
    found: dict[str, list[str]] = {}
    for change in changes:
        for kind, rest in _flags_of(change, counts.get(change.path)):
            found.setdefault(kind, []).append(f"{kind}:{show_path(change.path)}{rest}")
    flags: list[str] = []
    for kind, lines in found.items():
        flags += lines[:_SHOWN_EACH]
        if len(lines) > _SHOWN_EACH:
            flags.append(f"{kind}:{len(lines) - _SHOWN_EACH} more")
    return tuple(flags)


def _flags_of(change: Change, counts: PathCounts | None) -> Iterator[tuple[str, str]]:
    *folders, name = change.path.split("/")
    if _TEST_NAME.fullmatch(name) or _TEST_FOLDERS.intersection(folders):
        yield ("tests-removed" if change.result is None else "tests"), ""
    if _LOCKS.fullmatch(name):
        yield "lock", ""
    elif _DEPENDENCIES.fullmatch(name):
        yield "dependencies", ""
    base, result = change.base, change.result
    if "120000" in (base.mode if base else "", result.mode if result else ""):
        yield "link", ""
    elif counts is not None and counts.binary:
        yield "binary", ""
    if base is not None and result is not None and base.mode != result.mode:
        yield "mode", f" {base.mode}>{result.mode}"
    elif base is None and result is not None and result.mode == "100755":
        yield "mode", " new, executable"
