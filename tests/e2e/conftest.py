"""A small world for tests of the whole: a repository with a failing test, a home, a provider."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from git_repository import make_repository
from whole_kit import CALC, World, chat_fake


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    """The calculator with its failing test, in git; the fake speaks Chat Completions, strictly."""
    base = tmp_path.resolve()
    (base / "home").mkdir(mode=0o700)
    root = make_repository(base / "calc", CALC)
    with chat_fake() as fake:
        yield World(root=root, home=base / "home", fake=fake)
