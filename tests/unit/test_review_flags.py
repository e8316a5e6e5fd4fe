"""What of a patch a person should look at is named by its kind."""

from __future__ import annotations

import pytest

from remit.workspaces._changes import Change, Content
from remit.workspaces._checks import CheckDefinition, CheckRun
from remit.workspaces._patch import PathCounts
from remit.workspaces._review_flags import flags_of_changes
from remit.workspaces._service_checking import judge

A = Content("100644", "a" * 64, 1)
B = Content("100644", "b" * 64, 1)
RUNS = Content("100755", "b" * 64, 1)
LINK = Content("120000", "c" * 64, 1)


@pytest.mark.parametrize(
    ("path", "base", "result", "flags"),
    [
        ("src/app.py", A, B, ()),
        ("tests/test_app.py", A, B, ("tests:tests/test_app.py",)),
        ("src/latest.py", A, B, ()),
        ("pkg/app_test.go", A, None, ("tests-removed:pkg/app_test.go",)),
        ("web/a.spec.tsx", None, A, ("tests:web/a.spec.tsx",)),
        ("src/test/java/ATest.java", A, B, ("tests:src/test/java/ATest.java",)),
        ("pyproject.toml", A, B, ("dependencies:pyproject.toml",)),
        ("sub/requirements-dev.txt", A, B, ("dependencies:sub/requirements-dev.txt",)),
        ("requirements.txt", None, B, ("dependencies:requirements.txt",)),
        ("package-lock.json", A, B, ("lock:package-lock.json",)),
        ("Cargo.lock", None, B, ("lock:Cargo.lock",)),
        ("go.sum", A, None, ("lock:go.sum",)),
        ("uv.lock", A, B, ("lock:uv.lock",)),
        ("web/pnpm-lock.yaml", A, B, ("lock:web/pnpm-lock.yaml",)),
        ("yarn.lock", A, B, ("lock:yarn.lock",)),
        ("poetry.lock", A, B, ("lock:poetry.lock",)),
        ("run.sh", A, RUNS, ("mode:run.sh 100644>100755",)),
        ("new.sh", None, RUNS, ("mode:new.sh new, executable",)),
        ("a", A, LINK, ("link:a", "mode:a 100644>120000")),
        ("b", None, LINK, ("link:b",)),
        ("gone", LINK, None, ("link:gone",)),
    ],
)
def test_each_kind_is_named(
    path: str, base: Content | None, result: Content | None, flags: tuple[str, ...]
) -> None:
    """Tests, dependencies, lock files, executable bits and links each have their word."""
    assert flags_of_changes([Change(path, base, result)], {}) == flags


def test_binary_and_many() -> None:
    """Bytes that no diff shows are flagged; of one kind no more than a page is listed."""
    assert flags_of_changes([Change("x.png", A, B)], {"x.png": PathCounts(binary=True)}) == ("binary:x.png",)
    many = [Change(f"tests/t{number}.py", A, B) for number in range(30)]
    flags = flags_of_changes(many, {})
    assert len(flags) == 21
    assert flags[-1] == "tests:10 more"


async def _judged(*exits: int | None, base: int | None = 0, gate: str = "no_worse") -> tuple[object, ...]:
    left = list(exits)

    async def run(check: CheckDefinition) -> CheckRun:
        return CheckRun(exit=left.pop(0), ms=1, tail="")

    check = CheckDefinition(id="t", argv=("t",), why="x")
    result, _ = await judge(check, base, gate=gate, run=run)  # type: ignore[arg-type] - one of the gates
    assert not left, "run as often as was foreseen"
    return result.gate, result.exit, result.flaky


async def test_a_flaky_check_has_a_second_try() -> None:
    """A check that is worse is run once more; that it passed only then is noted. Never a third try."""
    assert await _judged(0) == ("pass", 0, False)
    assert await _judged(1, 0) == ("pass", 0, True)
    assert await _judged(1, 1) == ("worse", 1, False)
    assert await _judged(1, 1, base=1, gate="all_pass") == ("worse", 1, False)
    assert await _judged(1, 0, gate="report") == ("pass", 0, True)
    assert await _judged(1, base=1) == ("pass", 1, False)


async def test_what_would_come_to_the_same_isnt_tried_again() -> None:
    """A check that took too long, or can't be started, has no second try."""
    assert await _judged(124) == ("worse", 124, False)
    assert await _judged(None) == ("worse", None, False)
    assert await _judged(3, base=None) == ("skipped", 3, False)
