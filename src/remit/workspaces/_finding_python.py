"""How a Python project is tested, linted and typed: pytest, unittest, nox, tox; ruff; mypy, pyright."""

from __future__ import annotations

import re
from collections.abc import Sequence

from remit.workspaces._checks import CheckDefinition
from remit.workspaces._project import CanImport, HasProgram, Project

__all__ = ["find_python"]

_TEST_FILE = re.compile(r"(?:test_[^/]*|[^/]*_test)\.py\Z")
_READ_AT_MOST = 20


async def find_python(
    project: Project, can_import: CanImport, has_program: HasProgram
) -> list[CheckDefinition]:
    """The checks of a Python project; empty where it is none."""
    tests = await _find_tests(project, can_import) or await _find_runner(project, has_program)
    lint = await _find_lint(project, has_program)
    types = await _find_types(project, has_program)
    return [check for check in (tests, lint, types) if check is not None]


def _test_files(project: Project) -> list[str]:
    """Python test files in the folder itself, or below `tests` or `test`."""
    return [
        path
        for path in project.paths
        if _TEST_FILE.search(path)
        and ("/" not in path or path.split("/", 1)[0] in ("tests", "test") or "/tests/" in path)
    ]


async def _find_tests(project: Project, can_import: CanImport) -> CheckDefinition | None:
    configured = await _pytest_config(project)
    tests = _test_files(project)
    if configured is None and not tests:
        return None
    problem = await can_import("pytest", project.folder)
    if problem is not None:
        unittest = await _find_unittest(project, tests)
        if unittest is not None:
            return unittest
    return CheckDefinition(
        id="pytest",
        argv=("python3", "-m", "pytest", "-q"),
        cwd=project.folder,
        why=configured or f"test files such as {tests[0]}",
        problem=problem,
    )


async def _pytest_config(project: Project) -> str | None:
    """Where pytest is configured, in words."""
    for name, pattern in (
        ("pytest.ini", r"^\[pytest\]"),
        (".pytest.ini", r"^\[pytest\]"),
        ("pyproject.toml", r"^\[tool\.pytest[.\]]"),
        ("tox.ini", r"^\[pytest\]"),
        ("setup.cfg", r"^\[tool:pytest\]"),
    ):
        found = await project.matches(name, pattern)
        if found or (name == "pytest.ini" and name in project.names):
            return f"{name} [tool.pytest]" if name == "pyproject.toml" else name
    return project.find("conftest.py", "tests/conftest.py")


async def _find_unittest(project: Project, tests: Sequence[str]) -> CheckDefinition | None:
    for path in tests[:_READ_AT_MOST]:
        if await project.matches(
            path, r"^\s*(?:from\s+|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*)unittest\b"
        ):
            return CheckDefinition(
                id="unittest",
                argv=("python3", "-m", "unittest", "discover", *_discover_options(project, path)),
                cwd=project.folder,
                why=f"{path} uses unittest, and pytest isn't there",
            )
    return None


def _discover_options(project: Project, path: str) -> list[str]:
    folder, _, name = path.rpartition("/")
    top = folder.split("/")[0]
    options: list[str] = []
    if top:
        options += ["-s", top]
        options += ["-t", "."] if f"{top}/__init__.py" in project.names else []
    return options if name.startswith("test") else [*options, "-p", "*_test.py"]


async def _find_runner(project: Project, has_program: HasProgram) -> CheckDefinition | None:
    """Nox or tox, which make environments of their own, and so may need a network."""
    if "noxfile.py" in project.names and await has_program("nox", project.folder):
        return CheckDefinition(
            id="nox", argv=("nox", "--no-install", "-R"), cwd=project.folder, why="noxfile.py"
        )
    in_pyproject = await project.matches("pyproject.toml", r"^\[tool\.tox[.\]]")
    in_setup = await project.matches("setup.cfg", r"^\[tox:tox\]")
    where = "tox.ini" if "tox.ini" in project.names else "tox.toml" if "tox.toml" in project.names else None
    where = where or ("pyproject.toml [tool.tox]" if in_pyproject else "setup.cfg" if in_setup else None)
    if where is not None and await has_program("tox", project.folder):
        return CheckDefinition(id="tox", argv=("tox", "-q"), cwd=project.folder, why=where)
    return None


async def _find_lint(project: Project, has_program: HasProgram) -> CheckDefinition | None:
    where = project.find("ruff.toml", ".ruff.toml")
    if where is None and await project.matches("pyproject.toml", r"^\[tool\.ruff[.\]]"):
        where = "pyproject.toml [tool.ruff]"
    if where is None or not await has_program("ruff", project.folder):
        return None
    return CheckDefinition(
        id="ruff", argv=("ruff", "check", "."), cwd=project.folder, why=where, purpose="lint"
    )


async def _find_types(project: Project, has_program: HasProgram) -> CheckDefinition | None:
    return await _find_mypy(project, has_program) or await _find_pyright(project, has_program)


async def _find_mypy(project: Project, has_program: HasProgram) -> CheckDefinition | None:
    where = None
    names_files = False
    for name, table, setting in (
        ("mypy.ini", r"^\[mypy\]", r"^(?:files|packages|modules)\s*="),
        (".mypy.ini", r"^\[mypy\]", r"^(?:files|packages|modules)\s*="),
        ("pyproject.toml", r"^\[tool\.mypy\]", r"^(?:files|packages|modules)\s*="),
        ("setup.cfg", r"^\[mypy\]", r"^(?:files|packages|modules)\s*="),
    ):
        if await project.matches(name, table):
            where = f"{name} [tool.mypy]" if name == "pyproject.toml" else name
            names_files = await project.matches(name, setting)
            break
    if where is None or not await has_program("mypy", project.folder):
        return None
    argv = ("mypy",) if names_files else ("mypy", ".")
    return CheckDefinition(id="mypy", argv=argv, cwd=project.folder, why=where, purpose="types")


async def _find_pyright(project: Project, has_program: HasProgram) -> CheckDefinition | None:
    where = project.find("pyrightconfig.json")
    if where is None and await project.matches("pyproject.toml", r"^\[tool\.(?:based)?pyright\]"):
        where = "pyproject.toml [tool.pyright]"
    if where is None or not await has_program("pyright", project.folder):
        return None
    return CheckDefinition(id="pyright", argv=("pyright",), cwd=project.folder, why=where, purpose="types")
