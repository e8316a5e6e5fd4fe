"""What may be loaded, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import remit

SOURCE = Path(remit.__file__).parent
PROVIDERS = {"openai", "pydantic_ai", "anthropic", "google"}
SERVER = {"starlette", "fastapi", "uvicorn", "asyncpg", "temporalio"}
HEAVY = {"pydantic", "httpx2", "sqlite3", "asyncio", "rich", "click", "genai_prices", "yaml"}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    answer = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout))


def entries() -> list[str]:
    """The modules that start a program, as far as they exist."""
    names = ("cli", "host", "node_agent", "workspaces", "models", "storage", "config")
    return [name for name in names if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()]


def test_the_bare_import_loads_nothing_heavy() -> None:
    """`import remit` is for asking for a name: it loads no library and no store."""
    assert loaded_by("import remit") & (HEAVY | PROVIDERS | SERVER) == set()


@pytest.mark.parametrize("entry", entries())
def test_provider_libraries_are_loaded_when_first_used(entry: str) -> None:
    """A provider's library costs a second; no program pays for it before it asks a model."""
    assert loaded_by(f"import remit.{entry}") & PROVIDERS == set()


@pytest.mark.parametrize("entry", [name for name in entries() if name in {"node_agent", "workspaces", "cli"}])
def test_a_node_needs_nothing_of_a_server(entry: str) -> None:
    """The node agent installs and starts without the server's dependencies."""
    assert loaded_by(f"import remit.{entry}") & SERVER == set()


def test_the_keeper_is_standard_library_alone() -> None:
    """The process that holds checkouts is forked for each: it may not carry libraries along."""
    # A machine's own Python may load something by itself, such as Debian's sitecustomize.
    names = loaded_by("import remit.workspaces.keeper") - loaded_by("pass")
    foreign = names - set(sys.stdlib_module_names) - {"remit"}
    assert {name for name in foreign if not name.startswith(("_", "__editable__"))} == set()
