"""Fails the build on a long file, a name without meaning, a path of one machine, a rule off without why."""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path, PurePath

from repository import ROOT, own_files, read_text, report

LONG_LINES = 400
TOO_LONG_LINES = 800
LONG_FUNCTION_LINES = 50
SOURCE_SUFFIXES = {".py", ".js", ".css", ".html", ".sql", ".sh"}
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "base", "misc"}
# Where one of those words means something here.
NAMES_WITH_A_MEANING = {PurePath("src/remit/workspaces/_base.py")}  # the pinned base of a checkout
# Written in halves, so that this file itself names no registry.
REGISTRIES = (
    "pypi." + "org",
    "pythonhosted." + "org",
    "registry.npmjs." + "org",
    "registry.yarnpkg." + "com",
    "crates." + "io",
    "deb.debian." + "org",
    "proxy.golang." + "org",
    "rubygems." + "org",
    "repo1.maven." + "org",
    "conda.anaconda." + "org",
)
# Folders that hold many people's files: that a checkout lies in one of them makes its name no secret.
SHARED_FOLDERS = {"/", "/home", "/Users", "/root", "/tmp", "/var", "/usr", "/opt", "/srv", "/mnt"}
DATA_FOLDER = "data"
SWITCHED_OFF = re.compile(
    r"#\s*(?:ruff:\s*)?(?:type:\s*ignore|pyright:\s*ignore|noqa)\b"
    r"(?:\[[^]]*\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?(?P<why>.*)"
)
REASON = re.compile(r"[^\W\d_]{2,}\W+[^\W\d_]+")


def main() -> int:
    """Check every file of the repository."""
    problems: list[str] = []
    warnings: list[str] = []
    machine = machine_paths(ROOT)
    for name in own_files():
        text = read_text(ROOT / name)
        problems += name_problems(name)
        if text is None:
            continue
        problems += word_problems(name, text, machine)
        problems += reason_problems(name, text)
        found, noted = size_problems(name, text)
        problems += found
        warnings += noted
    return report(problems, warnings)


def name_problems(name: Path) -> list[str]:
    """A module or package must say what it holds."""
    if PurePath(name) in NAMES_WITH_A_MEANING or name.parts[0] not in {"src", "tests", "tools", "bench"}:
        return []
    words = [part.removesuffix(".py").strip("_") for part in name.parts]
    return [f"{name}: `{word}` says nothing about what it holds" for word in words if word in EMPTY_NAMES]


def size_problems(name: Path, text: str) -> tuple[list[str], list[str]]:
    """Problems and warnings about the length of a source file and of its functions."""
    if name.suffix not in SOURCE_SUFFIXES or DATA_FOLDER in name.parts:
        return [], []
    lines = text.count("\n")
    if lines > TOO_LONG_LINES:
        return [f"{name}: {lines} lines; more than {TOO_LONG_LINES} fails"], []
    warnings = [f"{name}: {lines} lines is long"] if lines > LONG_LINES else []
    if name.suffix == ".py" and name.parts[0] == "src":
        warnings += long_functions(name, text)
    return [], warnings


def long_functions(name: Path, text: str) -> list[str]:
    """Functions whose body (docstring left out) is longer than it should be."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            length = (node.end_lineno or 0) - first.lineno + 1
            if length > LONG_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines")
    return found


def reason_problems(name: Path, text: str) -> list[str]:
    """A rule that is switched off says why: behind it or in a comment above; one serves lines in a row."""
    if name.suffix != ".py":
        return []
    comments = {
        token.start[0]: token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    found: list[str] = []
    explained = -1  # no line
    for number, token in comments.items():
        off = SWITCHED_OFF.search(token.string)
        if off is None:
            explained = number if not token.line[: token.start[1]].strip() else explained
        elif REASON.search(off["why"]) or explained == number - 1:
            explained = number
        else:
            found.append(f"{name}:{number}: a rule is switched off and nothing says why")
    return found


def machine_paths(root: Path) -> list[re.Pattern[str]]:
    """Patterns for the paths that only this machine knows: the checkout, its parent, the user's home."""
    folders = {str(root), str(root.parent), str(Path.home())} - SHARED_FOLDERS
    return [re.compile(rf"(?<![\w.~-]){re.escape(folder)}(?=/)") for folder in sorted(folders)]


def word_problems(name: Path, text: str, machine: list[re.Pattern[str]]) -> list[str]:
    """Addresses of package registries, and paths of the machine that the check runs on."""
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        found += [f"{name}:{number}: names a registry, {host}" for host in REGISTRIES if host in line]
        found += [
            f"{name}:{number}: names this machine's {path.pattern}" for path in machine if path.search(line)
        ]
    return found


if __name__ == "__main__":
    sys.exit(main())
