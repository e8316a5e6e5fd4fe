"""The locks: whole, hashed, and silent about where packages come from."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import check_imports

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
LOCKS = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))


def pins(lock: str) -> dict[str, str]:
    """Name -> version of a lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (REQUIREMENTS / lock).read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_its_hashes(lock: str) -> None:
    """Each requirement is one exact version with at least one hash, and there is nothing else."""
    joined = (REQUIREMENTS / lock).read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    assert lines
    form = re.compile(r"[a-z0-9-]+==\S+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+ *")
    assert [line[:80] for line in lines if form.fullmatch(line) is None] == []


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.iterdir()), ids=lambda path: path.name)
def test_no_lock_names_a_source(path: Path) -> None:
    """Where packages come from is the machine's own setting."""
    text = path.read_text()
    assert "://" not in text
    assert "index" not in text.replace("import-linter", "")


def test_what_the_project_asks_for_is_locked() -> None:
    """Each dependency of the project is in the runtime lock, each tool in the other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[\[<>=!; ]", line)[0] for line in project["dependencies"]}
    assert wanted - set(pins("run.txt")) == set()
    tools = {re.split(r"[\[<>=!; ]", line)[0] for line in (REQUIREMENTS / "dev.in").read_text().splitlines()}
    assert {tool for tool in tools if tool and tool[0].isalpha()} - set(pins("dev.txt")) == set()


def test_the_locks_agree() -> None:
    """What is tested is what is run: the larger lock has the smaller one's versions."""
    tested = pins("dev.txt")
    assert {name: version for name, version in pins("run.txt").items() if tested.get(name) != version} == {}


IMPORT_NAMES = {"pyyaml": "yaml", "pydantic-ai-slim": "pydantic_ai", "google-genai": "google"}
BROUGHT_ALONG = {"anyio": "mcp", "openai": "pydantic-ai-slim[openai]", "typing_extensions": "pydantic"}
"""Imported, and part of what a dependency promises to bring."""
PLUGINS = {"pytest-asyncio"}
"""Loaded by another tool, never imported here."""


def test_what_is_imported_is_asked_for() -> None:
    """Each library that the code imports is a dependency, and each dependency is imported somewhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = {re.split(r"[\[<>=!; ]", line)[0] for line in [*project["dependencies"], *extras]} - PLUGINS
    names = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in wanted}
    tops = {found.module.split(".")[0] for found in check_imports.imports_of(ROOT / "src" / "remit")}
    foreign = {top for top in tops if top not in sys.stdlib_module_names and top != "remit"}
    assert foreign - names - set(BROUGHT_ALONG) == set()
    assert names - foreign == set()
