"""How projects in other languages are tested, linted and typed: npm scripts, Cargo, Go, Gradle, Maven."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from remit.workspaces._checks import CheckDefinition, CheckPurpose
from remit.workspaces._project import HasProgram, Project

__all__ = ["find_compiled", "find_make", "find_node"]

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_SCRIPTS: Final[tuple[tuple[CheckPurpose, tuple[str, ...]], ...]] = (
    ("test", ("test",)),
    ("lint", ("lint",)),
    ("types", ("typecheck", "type-check", "check-types", "types", "tsc")),
)
_PLACEHOLDER = "no test specified"
"""What `npm init` writes where there are no tests."""
_WRITES: Final = re.compile(r"--(?:fix|write)\b")


async def find_node(project: Project) -> list[CheckDefinition]:
    """The scripts of a package.json for tests, lint and types, by the package manager whose lock is there."""
    package = await project.read_json("package.json")
    scripts = package.get("scripts")
    if not isinstance(scripts, dict):
        return []
    texts = {name: text for name, text in cast("dict[str, Any]", scripts).items() if isinstance(text, str)}
    manager = _package_manager(project, str(package.get("packageManager", "")))
    found: list[CheckDefinition] = []
    for purpose, names in _SCRIPTS:
        for name in names:
            script = texts.get(name)
            if script is not None and _PLACEHOLDER not in script and not _WRITES.search(script):
                found.append(_script(project, manager, name, purpose))
                break
    return found


def _script(project: Project, manager: str, name: str, purpose: CheckPurpose) -> CheckDefinition:
    argv = (manager, "test") if name == "test" else (manager, "run", name)
    return CheckDefinition(
        id=f"{manager}-{name}",
        argv=argv,
        cwd=project.folder,
        why=f"package.json has a script `{name}`",
        purpose=purpose,
    )


def _package_manager(project: Project, named: str) -> str:
    for manager in ("pnpm", "yarn", "npm"):
        if named.startswith(f"{manager}@"):
            return manager
    if "pnpm-lock.yaml" in project.names:
        return "pnpm"
    return "yarn" if "yarn.lock" in project.names else "npm"


async def find_compiled(project: Project, has_program: HasProgram) -> list[CheckDefinition]:
    """Cargo, Go, Gradle and Maven: nothing is fetched, since a check has no network."""
    found: list[CheckDefinition] = []
    if "Cargo.toml" in project.names:
        found += await _find_cargo(project, has_program)
    if "go.mod" in project.names:
        found += await _find_go(project, has_program)
    found += _find_gradle(project) or _find_maven(project)
    return found


async def _find_cargo(project: Project, has_program: HasProgram) -> list[CheckDefinition]:
    found = [
        CheckDefinition(
            id="cargo-test", argv=("cargo", "test", "--offline"), cwd=project.folder, why="Cargo.toml"
        )
    ]
    where = project.find("clippy.toml", ".clippy.toml")
    if where is None and await project.matches("Cargo.toml", r"^\[(?:workspace\.)?lints\.clippy\]"):
        where = "Cargo.toml [lints.clippy]"
    if where is not None and await has_program("cargo-clippy", project.folder):
        argv = ("cargo", "clippy", "--offline", "--all-targets", "--", "-D", "warnings")
        found.append(
            CheckDefinition(id="cargo-clippy", argv=argv, cwd=project.folder, why=where, purpose="lint")
        )
    return found


async def _find_go(project: Project, has_program: HasProgram) -> list[CheckDefinition]:
    found = [CheckDefinition(id="go-test", argv=("go", "test", "./..."), cwd=project.folder, why="go.mod")]
    where = project.find(".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json")
    if where is not None and await has_program("golangci-lint", project.folder):
        argv = ("golangci-lint", "run")
        found.append(
            CheckDefinition(id="golangci-lint", argv=argv, cwd=project.folder, why=where, purpose="lint")
        )
    return found


def _find_gradle(project: Project) -> list[CheckDefinition]:
    where = project.find("build.gradle.kts", "build.gradle", "settings.gradle.kts", "settings.gradle")
    if where is None:
        return []
    program = "./gradlew" if "gradlew" in project.names else "gradle"
    argv = (program, "test", "--offline", "--console=plain", "--no-daemon")
    return [CheckDefinition(id="gradle-test", argv=argv, cwd=project.folder, why=where)]


def _find_maven(project: Project) -> list[CheckDefinition]:
    if "pom.xml" not in project.names:
        return []
    program = "./mvnw" if "mvnw" in project.names else "mvn"
    argv = (program, "--offline", "--batch-mode", "--quiet", "test")
    return [CheckDefinition(id="maven-test", argv=argv, cwd=project.folder, why="pom.xml")]


async def find_make(project: Project) -> list[CheckDefinition]:
    """The `test` target of make, else `check`."""
    for target in ("test", "check"):
        for name in _MAKEFILES:
            if await project.matches(name, rf"^{target}\s*:(?!=)"):
                return [
                    CheckDefinition(
                        id=f"make-{target}",
                        argv=("make", target),
                        cwd=project.folder,
                        why=f"{name} has a target `{target}`",
                    )
                ]
    return []
