"""Finds how a project is checked, from its files: its tests, and the lint and type checks that it configures.

Tests are looked for in the working folder, else in the folders above it, else in projects one or two folders
below. One test command for each toolchain that a folder is set up for; make, tox and nox only where nothing
more direct is there, since they start the same tests with more around them. A lint or type check is taken
where the project configures the tool and the tool can be started: a missing linter is no missing test.

Finding reads files only. Whether something can be imported or started is asked where commands run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remit.workspaces._checks import CheckDefinition
from remit.workspaces._finding_others import find_compiled, find_make, find_node
from remit.workspaces._finding_python import find_python
from remit.workspaces._project import CanImport, HasProgram, Project, ReadText

__all__ = ["find_checks"]

_DEEPEST = 2
_PROJECTS_AT_MOST = 4
_MARKS = frozenset(
    {
        "pyproject.toml",
        "setup.cfg",
        "tox.ini",
        "noxfile.py",
        "package.json",
        "Cargo.toml",
        "go.mod",
        "build.gradle",
        "build.gradle.kts",
        "pom.xml",
    }
)
"""Files that say that a folder is a project of its own."""
_NOT_PROJECTS = frozenset(
    {"node_modules", "vendor", "third_party", "examples", "example", "docs", "testdata", "fixtures", "target"}
)


async def find_checks(
    paths: Sequence[str],
    *,
    subdir: str,
    read_text: ReadText,
    can_import: CanImport,
    has_program: HasProgram,
) -> tuple[CheckDefinition, ...]:
    """Find how a project is checked.

    Args:
        paths: Every file of the base.
        subdir: The working folder, from the root.
        read_text: Reads a file of the base.
        can_import: Asks the interpreter that commands would use.
        has_program: Asks whether a program can be started in a folder.

    Returns:
        Tests first, then lint, then types; each with the reason why it was chosen.
    """
    for folder in _upwards(subdir):
        found = await _find_in(Project.at(folder, paths, read_text), can_import, has_program)
        if found:
            return found
    below: list[CheckDefinition] = []
    for folder in _projects_below(paths, subdir):
        found = await _find_in(Project.at(folder, paths, read_text), can_import, has_program)
        below += [replace(check, id=_id_below(check.id, folder)) for check in found]
    return tuple(below)


def _id_below(check_id: str, folder: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{check_id}-{folder}")[:64]


async def _find_in(
    project: Project, can_import: CanImport, has_program: HasProgram
) -> tuple[CheckDefinition, ...]:
    found = [
        *await find_python(project, can_import, has_program),
        *await find_node(project),
        *await find_compiled(project, has_program),
    ]
    tests = [check for check in found if check.purpose == "test"]
    if not tests:
        tests = await find_make(project)
    if not tests:
        return ()
    others = [check for purpose in ("lint", "types") for check in found if check.purpose == purpose]
    return (*tests, *others)


def _upwards(subdir: str) -> list[str]:
    parts = [part for part in subdir.split("/") if part]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def _projects_below(paths: Sequence[str], subdir: str) -> Iterator[str]:
    """The first folders below the working folder that are set up as projects, in order."""
    prefix = f"{subdir}/" if subdir else ""
    folders: set[str] = set()
    for path in paths:
        if not path.startswith(prefix):
            continue
        *parts, name = path.removeprefix(prefix).split("/")
        if name in _MARKS and 0 < len(parts) <= _DEEPEST and not _NOT_PROJECTS.intersection(parts):
            folders.add(prefix + "/".join(parts))
    yield from sorted(folders)[:_PROJECTS_AT_MOST]
