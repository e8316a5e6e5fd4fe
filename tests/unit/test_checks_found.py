"""Checks are found from a project's files, run as told, and judged by a pure rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.contract import Gate
from remit.workspaces._checks import (
    CheckDefinition,
    CheckRun,
    compare,
    configured_checks,
    describe_broken,
    run_check,
)
from remit.workspaces._finding_checks import find_checks
from remit.workspaces._settings import CommandDefinition, WorkspaceSettings
from workspace_fakes import FolderCheckout, command_result

UNITTEST = "import unittest\n"


async def find(
    files: dict[str, str], *, subdir: str = "", pytest_there: bool = True, programs: str = ""
) -> tuple[CheckDefinition, ...]:
    async def read_text(path: str) -> str:
        return files[path]

    async def can_import(module: str, folder: str) -> str | None:
        assert module == "pytest"
        return None if pytest_there else "python3 has no module pytest"

    async def has_program(name: str, folder: str) -> bool:
        return name in programs.split()

    return await find_checks(
        sorted(files), subdir=subdir, read_text=read_text, can_import=can_import, has_program=has_program
    )


PACKAGE = '{"scripts": {"test": "node --test", "lint": "eslint .", "typecheck": "tsc --noEmit"}}'


@pytest.mark.parametrize(
    ("files", "programs", "commands"),
    [
        ({"package.json": PACKAGE}, "", ["npm test", "npm run lint", "npm run typecheck"]),
        (
            {"package.json": PACKAGE, "pnpm-lock.yaml": ""},
            "",
            ["pnpm test", "pnpm run lint", "pnpm run typecheck"],
        ),
        ({"package.json": '{"scripts": {"test": "jest"}}', "yarn.lock": ""}, "", ["yarn test"]),
        ({"package.json": '{"packageManager": "pnpm@9.1.0", "scripts": {"test": "x"}}'}, "", ["pnpm test"]),
        ({"package.json": '{"scripts": {"test": "echo Error: no test specified && exit 1"}}'}, "", []),
        ({"package.json": '{"scripts": {"test": "x", "lint": "eslint --fix ."}}'}, "", ["npm test"]),
        ({"package.json": "[1, 2"}, "", []),
        ({"package.json": '{"scripts": {"test": 7}}'}, "", []),
        ({"Cargo.toml": "[package]\n", "src/lib.rs": ""}, "", ["cargo test --offline"]),
        (
            {"Cargo.toml": "[lints.clippy]\n"},
            "cargo-clippy",
            ["cargo test --offline", "cargo clippy --offline --all-targets -- -D warnings"],
        ),
        (
            {"go.mod": "module x\n", ".golangci.yml": ""},
            "golangci-lint",
            ["go test ./...", "golangci-lint run"],
        ),
        (
            {"build.gradle.kts": "", "gradlew": ""},
            "",
            ["./gradlew test --offline --console=plain --no-daemon"],
        ),
        ({"build.gradle": ""}, "", ["gradle test --offline --console=plain --no-daemon"]),
        ({"pom.xml": ""}, "", ["mvn --offline --batch-mode --quiet test"]),
        ({"pom.xml": "", "mvnw": ""}, "", ["./mvnw --offline --batch-mode --quiet test"]),
        ({"noxfile.py": "", "src/a.py": ""}, "nox", ["nox --no-install -R"]),
        ({"tox.ini": "[tox]\n"}, "tox", ["tox -q"]),
        ({"tox.ini": "[tox]\n"}, "", []),
        ({"tox.ini": "[tox]\n", "tests/test_a.py": ""}, "tox", ["python3 -m pytest -q"]),
        ({"Makefile": "check:\n\ttrue\n"}, "", ["make check"]),
        (
            {"Makefile": "test:\n\ttrue\n", "package.json": '{"scripts": {"lint": "eslint ."}}'},
            "",
            ["make test", "npm run lint"],
        ),
        (
            {"tests/test_a.py": "", "pyproject.toml": "[tool.ruff]\n[tool.mypy]\nfiles = 'src'\n"},
            "ruff mypy",
            ["python3 -m pytest -q", "ruff check .", "mypy"],
        ),
        ({"tests/test_a.py": "", "mypy.ini": "[mypy]\n"}, "mypy", ["python3 -m pytest -q", "mypy ."]),
        (
            {"tests/test_a.py": "", "pyrightconfig.json": "{}", "ruff.toml": ""},
            "pyright",
            ["python3 -m pytest -q", "pyright"],
        ),
        ({"ruff.toml": "", "a.py": ""}, "ruff", []),
    ],
)
async def test_other_toolchains_are_found(files: dict[str, str], programs: str, commands: list[str]) -> None:
    """Tests of each toolchain; lint and types where configured and there; nothing that writes files."""
    found = await find(files, programs=programs)
    assert [check.command for check in found] == commands
    assert all(check.why for check in found), "each says why it was chosen"


async def test_projects_below_where_there_is_none_above() -> None:
    """A folder of projects: the first four that are set up for a toolchain, each under a name of its own."""
    files = {
        "backend/go.mod": "module x\n",
        "web/app/package.json": PACKAGE,
        "a/b/c/Cargo.toml": "",
        "node_modules/x/package.json": PACKAGE,
        "README.md": "",
    }
    found = await find(files)
    assert [(check.id, check.cwd) for check in found] == [
        ("go-test-backend", "backend"),
        ("npm-test-web-app", "web/app"),
        ("npm-lint-web-app", "web/app"),
        ("npm-typecheck-web-app", "web/app"),
    ]
    assert (await find(files, subdir="web/app"))[0].id == "npm-test"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "pyproject.toml [tool.pytest]"),
        ({"pyproject.toml": "[tool.pytest]\nx=1"}, "pyproject.toml [tool.pytest]"),
        ({"pytest.ini": ""}, "pytest.ini"),
        ({"setup.cfg": "[metadata]\n[tool:pytest]\n"}, "setup.cfg"),
        ({"tox.ini": "[pytest]\n"}, "tox.ini"),
        ({"tests/conftest.py": ""}, "tests/conftest.py"),
        ({"tests/test_a.py": "", "Makefile": "test:\n\ttrue\n"}, "test files such as tests/test_a.py"),
        ({"test_a.py": UNITTEST}, "test files such as test_a.py"),
    ],
)
async def test_pytest_is_found(files: dict[str, str], why: str) -> None:
    """Pytest where it is configured or there are test files, and it can be imported; it says why."""
    (check,) = await find(files)
    assert (check.id, check.command, check.why) == ("pytest", "python3 -m pytest -q", why)
    assert check.problem is None


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"test_a.py": UNITTEST}, "python3 -m unittest discover"),
        ({"tests/test_a.py": "from unittest import TestCase\n"}, "python3 -m unittest discover -s tests"),
        ({"test_a.py": "import random, os.path as p,unittest\n"}, "python3 -m unittest discover"),
        (
            {"tests/__init__.py": "", "tests/test_a.py": UNITTEST},
            "python3 -m unittest discover -s tests -t .",
        ),
        ({"a_test.py": UNITTEST}, "python3 -m unittest discover -p '*_test.py'"),
    ],
)
async def test_unittest_where_pytest_is_missing(files: dict[str, str], command: str) -> None:
    """Unittest where pytest can't be imported and the tests use it."""
    (check,) = await find(files, pytest_there=False)
    assert (check.id, check.command) == ("unittest", command)


async def test_make_comes_last() -> None:
    """The `test` target of make, where nothing else is found."""
    (check,) = await find({"Makefile": "all:\n\ntest: all\n\ttrue\n", "a.c": ""})
    assert (check.id, check.command, check.why) == ("make-test", "make test", "Makefile has a target `test`")
    assert await find({"Makefile": "test := 1\ntested:\n"}) == ()
    assert await find({"src/app.py": "", "contest.py": "", "docs/latest.md": ""}) == ()


async def test_what_is_missing_is_named() -> None:
    """Tests that need pytest where there is none: the check is there, and says why it can't be run."""
    (check,) = await find({"tests/test_a.py": "def test(): ...\n"}, pytest_there=False)
    assert (check.id, check.problem) == ("pytest", "python3 has no module pytest")


async def test_the_nearest_project_wins() -> None:
    """In a monorepo the working folder's own tests are the check, else those of a folder above."""
    files = {
        "packages/a/tests/test_a.py": "",
        "packages/a/src/deep/x.py": "",
        "tests/test_root.py": "",
        "b/x.py": "",
    }
    (check,) = await find(files, subdir="packages/a/src/deep")
    assert (check.cwd, check.why) == ("packages/a", "test files such as tests/test_a.py")
    (check,) = await find(files, subdir="b")
    assert check.cwd == ""


def test_named_checks() -> None:
    """What the workspace names is used as it stands; an empty list means none."""
    command = CommandDefinition(id="test", executable="pytest", args=("-q",))
    settings = WorkspaceSettings(ref="app", root=Path("/x"), commands=(command,), checks=("test",))
    assert configured_checks(settings, cwd="sub") == (
        CheckDefinition(id="test", argv=("pytest", "-q"), cwd="sub", why="named by the workspace"),
    )
    assert configured_checks(WorkspaceSettings(ref="app", root=Path("/x"), checks=()), cwd="") == ()
    assert configured_checks(WorkspaceSettings(ref="app", root=Path("/x")), cwd="") is None


@pytest.mark.parametrize(
    ("gate", "base", "result", "verdict"),
    [
        ("no_worse", 0, 0, "pass"),
        ("no_worse", 0, 1, "worse"),
        ("no_worse", 0, 5, "worse"),
        ("no_worse", 0, None, "worse"),
        ("no_worse", 1, 0, "pass"),
        ("no_worse", 1, 1, "pass"),
        ("no_worse", 1, 2, "worse"),
        ("no_worse", 1, 5, "worse"),
        ("no_worse", 1, 124, "worse"),
        ("no_worse", 2, 1, "pass"),
        ("no_worse", 124, 1, "pass"),
        ("no_worse", 5, 1, "worse"),
        ("no_worse", 5, 5, "pass"),
        ("no_worse", None, 0, "pass"),
        ("no_worse", None, 1, "skipped"),
        ("no_worse", None, None, "skipped"),
        ("all_pass", 0, 0, "pass"),
        ("all_pass", 1, 1, "worse"),
        ("all_pass", None, None, "worse"),
        ("report", 0, 1, "skipped"),
        ("report", 1, 2, "skipped"),
        ("report", 0, 0, "pass"),
    ],
)
def test_the_gate(gate: Gate, base: int | None, result: int | None, verdict: str) -> None:
    """What is worse than the base is worse, however bad the base was."""
    assert compare(gate, base, result) == verdict


@pytest.mark.parametrize(
    ("fields", "exit_", "problem"),
    [
        ({"exit_code": 3}, 3, None),
        ({"exit_code": None, "status": "signalled", "signal": 9}, 137, None),
        ({"exit_code": None, "status": "timed_out"}, 124, None),
        ({"exit_code": None, "status": "cancelled"}, None, None),
        (
            {"exit_code": None, "status": "failed_to_start", "message": "no such program"},
            None,
            "pytest can't be started: no such program",
        ),
        (
            {
                "exit_code": None,
                "status": "failed_to_start",
                "message": "bwrap: execvp pytest: No such file or directory",
            },
            None,
            "pytest can't be started: it, or the interpreter that it names, isn't in the sandbox; install it "
            "in the project's environment, or name its folder in the workspace's `path`",
        ),
    ],
)
async def test_how_a_check_ends(
    tmp_path: Path, fields: dict[str, object], exit_: int | None, problem: str
) -> None:
    """R55: each end of a check's command has its exit code, or is said to have none."""
    checkout = FolderCheckout(tmp_path, lambda spec: command_result(b"out\n", **fields))  # type: ignore[arg-type] - any of its fields
    settings = WorkspaceSettings(ref="app", root=tmp_path)
    check = CheckDefinition(id="t", argv=("pytest", "-q"), cwd="", why="x")
    try:
        run = await run_check(checkout, check, call_id="c", timeout_ms=5, settings=settings)
        assert (run.exit, run.problem) == (exit_, problem)
        assert checkout.specs[0].argv == ("pytest", "-q")
        assert checkout.specs[0].timeout_ms == 5
    finally:
        checkout.close()


def test_the_work_stage_is_told_what_broke() -> None:
    """The end of the output comes back with both exit codes."""
    check = CheckDefinition(id="t", argv=("pytest", "-q"), cwd="", why="x")
    text = describe_broken(check, 0, CheckRun(exit=1, ms=5, tail="FAILED test_a"))
    assert "`pytest -q`" in text
    assert "exited 0 on the base and now exits 1" in text
    assert text.endswith("FAILED test_a")
