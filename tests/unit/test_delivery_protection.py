"""Protected and frozen paths are matched part by part."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.workspaces._protection import PROTECTED, ignores_case, matching_paths


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/hooks/pre-commit",
        ".github/workflows/ci.yml",
        ".github/workflows",
        ".gitlab-ci.yml",
        ".envrc",
        "packages/a/.envrc",
        ".vscode/tasks.json",
        ".vscode",
        "a/.vscode/settings.json",
        ".husky/pre-commit",
        "remit.toml",
        "nested/remit.toml",
        "AGENTS.md",
        "docs/AGENTS.md",
        "CLAUDE.md",
        ".pre-commit-config.yaml",
        "azure-pipelines.yaml",
    ],
)
def test_what_is_protected(path: str) -> None:
    """R35: what runs elsewhere, or steers agents, is flagged wherever it lies."""
    assert matching_paths([path], PROTECTED, ignore_case=False) == (path,)


@pytest.mark.parametrize(
    "path",
    [
        "src/app.py",
        ".github/ISSUE_TEMPLATE.md",
        "xremit.toml",
        "remit.toml.bak",
        "vscode/x",
        ".gitignore",
        "a/.github/workflows/x.yml",
    ],
)
def test_what_is_not(path: str) -> None:
    """A neighbour whose name only looks alike isn't protected."""
    assert matching_paths([path], PROTECTED, ignore_case=False) == ()


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.lock", ["a.lock", "x/y/a.lock"], ["a.locks", "a.lock.py"]),
        ("docs/*.md", ["docs/a.md"], ["docs/x/a.md", "a/docs/b.md"]),
        ("docs/**/*.md", ["docs/a.md", "docs/x/y/a.md"], ["doc/a.md", "docs/a.mdx"]),
        ("vendor", ["vendor", "vendor/a", "x/vendor/b"], ["vendored/a"]),
        ("/vendor/", ["vendor/a"], ["vendors", "x/vendor/a"]),
        ("a/b/**", ["a/b", "a/b/c", "a/b/c/d"], ["a/bc"]),
        ("**/x/*.[ch]", ["x/a.c", "q/x/a.h"], ["x/a.cc", "x/y/a.c"]),
        ("[!a]?.py", ["bc.py"], ["ac.py", "b.py"]),
        ("a.b", ["a.b"], ["axb"]),
        ("**", ["anything", "at/all"], []),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    """A star doesn't cross a slash, two do; what lies below a match is matched too."""
    assert matching_paths([*yes, *no], [pattern], ignore_case=False) == tuple(yes)


def test_case_counts_only_where_the_file_system_says_so(tmp_path: Path) -> None:
    """On a file system that ignores case, `.VSCode` is `.vscode`."""
    names = (".VSCode/tasks.json", "Remit.TOML", "e\u0301/AGENTS.MD")
    assert matching_paths(names, PROTECTED, ignore_case=True) == names
    assert matching_paths(names, PROTECTED, ignore_case=False) == ()
    (tmp_path / "abc").mkdir()
    assert ignores_case(tmp_path / "abc") is (tmp_path / "ABC").exists()
