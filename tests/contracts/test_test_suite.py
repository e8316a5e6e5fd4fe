"""Rules for the tests themselves."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import TypeGuard

import pytest

TESTS = Path(__file__).resolve().parents[1]
MODULES = sorted(TESTS.rglob("test_*.py"))


def test_module_names_are_unique() -> None:
    """Test folders are no packages, so two modules of one name would be one module."""
    names = Counter(
        path.name for path in TESTS.rglob("*.py") if path.name not in {"conftest.py", "__init__.py"}
    )
    assert [name for name, times in names.items() if times > 1 and not _is_data(name)] == []


def _is_data(name: str) -> bool:
    """Whether every file of that name is data that a test lays out."""
    return all("data" in path.parts for path in TESTS.rglob(name))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_each_test_says_what_it_proves(path: Path) -> None:
    """A test without a docstring leaves its reader guessing which rule it holds up."""
    silent = [node.name for node in ast.walk(ast.parse(path.read_text())) if _is_silent_test(node)]
    assert silent == []


def _is_silent_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    )
