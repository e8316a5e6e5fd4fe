"""Finds Rust, Go and Java for a workspace: what the project asks for, and what was downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from remit.workspaces._project_marks import choose_version, has_marks, read_small, read_upwards
from remit.workspaces._shelf import Shelf

__all__ = ["find_go", "find_java", "find_rust"]

_RUST_MARKS: Final = ("Cargo.toml", "rust-toolchain", "rust-toolchain.toml")
_GO_MARKS: Final = ("go.mod", "go.work")
_JAVA_MARKS: Final = (
    *("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    *("mvnw", "gradlew", "build.sbt", ".sdkmanrc"),
)
_CHANNEL: Final = re.compile(r"""^\s*channel\s*=\s*["']([\w.+-]+)["']""", re.MULTILINE)
_DEFAULT_TOOLCHAIN: Final = re.compile(r"""^\s*default_toolchain\s*=\s*["']([\w.+-]+)["']""", re.MULTILINE)
_CANDIDATES: Final = ("java", "maven", "gradle", "kotlin", "sbt", "ant", "groovy")


def _folder(environ: Mapping[str, str], name: str, default: Path) -> Path:
    said = environ.get(name, "")
    return Path(said) if said.startswith("/") else default


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if os.path.isdir(entry))
    except OSError:
        return []


def find_rust(shelf: Shelf, *, environ: Mapping[str, str], folders: Sequence[Path]) -> None:
    """Shows rustup's toolchain in front of its proxies, which need all of rustup and may install more."""
    cargo = _folder(environ, "CARGO_HOME", shelf.home / ".cargo")
    if not has_marks(shelf.root, _RUST_MARKS) and cargo / "bin" not in folders:
        return
    toolchains = _folder(environ, "RUSTUP_HOME", shelf.home / ".rustup") / "toolchains"
    name = choose_version(_names(toolchains), _rust_wanted(shelf.root, environ, toolchains.parent))
    # A link is a toolchain of one's own (`rustup toolchain link`); it is shown where it leads, too.
    if name is not None and shelf.show(toolchains / name, kind="rust", why=f"rustup, {name}"):
        shelf.add_to_path(toolchains / name / "bin")
    if os.path.isdir(cargo / "bin") and shelf.show(cargo / "bin", kind="rust", why="cargo's own programs"):
        shelf.add_to_path(cargo / "bin")
    # Never `.cargo` itself: credentials and a configuration with tokens lie in it.
    for part in ("registry", "git"):
        shelf.show_cache(cargo / part, why="crates that were downloaded")


def _rust_wanted(root: Path, environ: Mapping[str, str], rustup: Path) -> str:
    named = environ.get("RUSTUP_TOOLCHAIN", "").strip()
    if named:
        return named
    text = read_upwards(root, "rust-toolchain.toml", "rust-toolchain")
    channel = _CHANNEL.search(text)
    if channel is not None:
        return channel.group(1)
    if text and "\n" not in text and "=" not in text:
        return text
    default = _DEFAULT_TOOLCHAIN.search(read_small(rustup / "settings.toml"))
    return default.group(1) if default else "stable"


def find_go(shelf: Shelf, *, environ: Mapping[str, str], folders: Sequence[Path]) -> None:
    """Shows Go's own folder, which `bin` alone is nothing without, and the modules that were downloaded."""
    roots = [_folder(environ, "GOROOT", Path("/nowhere")), *(f.parent for f in folders if f.name == "bin")]
    roots += [Path(os.path.realpath(folder / "go")).parent.parent for folder in folders]
    for root in dict.fromkeys(roots):
        if _is_go(root) and shelf.show(root, kind="go", why="Go's own folder"):
            shelf.add_to_path(root / "bin")
    if not has_marks(shelf.root, _GO_MARKS):
        return
    gopath = _folder(environ, "GOPATH", shelf.home / "go")
    shelf.show_cache(
        _folder(environ, "GOMODCACHE", gopath / "pkg" / "mod"), why="modules that were downloaded"
    )
    for name in ("GOPATH", "GOMODCACHE"):
        if environ.get(name, "").startswith("/"):
            shelf.environment[name] = environ[name]


def _is_go(folder: Path) -> bool:
    return (
        os.path.isfile(folder / "bin" / "go")
        and os.path.isfile(folder / "VERSION")
        and os.path.isdir(folder / "src")
    )


def find_java(shelf: Shelf, *, environ: Mapping[str, str], folders: Sequence[Path]) -> None:
    """Shows JAVA_HOME and what SDKMAN has chosen, and the artefacts that Maven and Gradle have downloaded."""
    home = environ.get("JAVA_HOME", "")
    sdkman = _folder(environ, "SDKMAN_DIR", shelf.home / ".sdkman") / "candidates"
    wanted = has_marks(shelf.root, _JAVA_MARKS)
    if wanted or any(folder.is_relative_to(sdkman) for folder in folders):
        _show_sdkman(shelf, sdkman)
    stated = (
        "JAVA_HOME" not in shelf.environment and home.startswith("/") and os.path.isdir(Path(home, "bin"))
    )
    if stated and shelf.show(Path(home), kind="java", why="JAVA_HOME"):
        shelf.environment["JAVA_HOME"] = home
        shelf.add_to_path(Path(home, "bin"))
    if not wanted:
        return
    gradle = _folder(environ, "GRADLE_USER_HOME", shelf.home / ".gradle")
    # Never `.m2` or `.gradle` themselves: settings with passwords lie in them.
    for cache in (
        shelf.home / ".m2" / "repository",
        shelf.home / ".m2" / "wrapper" / "dists",
        gradle / "caches",
        gradle / "wrapper" / "dists",
    ):
        shelf.show_cache(cache, why="artefacts that were downloaded")


def _show_sdkman(shelf: Shelf, candidates: Path) -> None:
    lines = (line.partition("=") for line in read_small(shelf.root / ".sdkmanrc").splitlines())
    pinned = {key.strip(): value.strip() for key, found, value in lines if found}
    for name in _CANDIDATES:
        folder = candidates / name
        chosen = choose_version(_names(folder), pinned[name]) if name in pinned else "current"
        installation = folder / (chosen or "current")
        real = Path(os.path.realpath(installation))
        if not real.is_relative_to(os.path.realpath(candidates)) or not os.path.isdir(real / "bin"):
            continue
        if shelf.show(installation, kind="java", why=f"SDKMAN, {name} {real.name}"):
            shelf.add_to_path(installation / "bin")
            if name == "java":
                shelf.environment["JAVA_HOME"] = str(installation)
