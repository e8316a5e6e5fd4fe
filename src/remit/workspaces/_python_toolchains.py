"""Finds Python environments and interpreters that a workspace uses."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from remit.workspaces._shelf import NAMED_BY_REPOSITORY, Shelf

__all__ = [
    "find_python",
    "finish_python",
    "is_python_prefix",
    "show_environment",
    "show_interpreter",
    "show_pyenv_folder",
]

_IN_TREE: Final = (".venv", "venv", "env", ".env")
_MAX_FILES: Final = 2_000
_MAX_FILE_BYTES: Final = 262_144
_MAX_LINKS: Final = 16
_CONDA_NAME: Final = re.compile(r"^name:\s*[\"']?([\w.-]+)[\"']?\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"[\w.+-]{1,64}\Z")


def find_python(
    shelf: Shelf, *, environ: Mapping[str, str], folders: Sequence[Path], executables: Sequence[str]
) -> None:
    """Shows environments and their interpreters; the environment in use comes first in PATH.

    Args:
        shelf: Takes what is found.
        environ: Of whoever works in the workspace.
        folders: The folders on PATH.
        executables: Programs that the settings name.
    """
    for number, (folder, why) in enumerate(_environments(shelf, environ, folders, executables)):
        show_environment(shelf, folder, why=why)
        if number == 0:
            shelf.add_to_path(folder / "bin")
            shelf.environment["VIRTUAL_ENV"] = str(folder)
    _show_conda(shelf, environ)


def show_pyenv_folder(shelf: Shelf, folder: Path, *, environ: Mapping[str, str]) -> bool:
    """Shows what pyenv's shims on PATH stand for; whether it is that folder."""
    if folder.name != "shims" or not os.path.isdir(folder.parent / "versions"):
        return False
    _show_pyenv(shelf, folder.parent, environ)
    return True


def finish_python(shelf: Shelf) -> None:
    """Sees to it that there is some Python, once all of PATH is known."""
    if "VIRTUAL_ENV" not in shelf.environment:
        _show_user_site(shelf)
    if not shutil.which("python3", path=":".join([*shelf.path, "/usr/local/bin", "/usr/bin", "/bin"])):
        show_interpreter(shelf, Path(sys.base_prefix) / "bin", why="the interpreter that Remit runs on")
        shelf.add_to_path(Path(sys.base_prefix) / "bin")


# ---- environments


def _environments(
    shelf: Shelf, environ: Mapping[str, str], folders: Sequence[Path], executables: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    """Virtual environments of the workspace, the one in use first; each once."""
    seen: set[Path] = set()
    for folder, why in _candidates(shelf, environ, folders, executables):
        real = Path(os.path.realpath(folder))
        if real not in seen and os.path.isfile(folder / "pyvenv.cfg"):
            seen.add(real)
            yield folder, why


def _candidates(
    shelf: Shelf, environ: Mapping[str, str], folders: Sequence[Path], executables: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    active = environ.get("VIRTUAL_ENV", "")
    own = Path(sys.prefix)
    # An active environment that is only Remit's own home says nothing about the workspace.
    if active.startswith("/") and Path(active) != own:
        yield Path(active), "VIRTUAL_ENV"
    for name in _IN_TREE:
        yield shelf.root / name, "in the workspace"
    project = environ.get("UV_PROJECT_ENVIRONMENT", "")
    if project:
        yield shelf.root / project, "UV_PROJECT_ENVIRONMENT"
    for executable in executables:
        if executable.startswith("/"):
            yield Path(executable).parent.parent, f"the command {executable}"
    if active.startswith("/"):
        yield Path(active), "VIRTUAL_ENV"
    for folder in folders:
        if folder.name == "bin" and folder.parent != own:
            yield folder.parent, "on PATH"
    if sys.prefix != sys.base_prefix and _points_into(own, shelf.root):
        yield own, "it has the workspace installed"


def show_environment(shelf: Shelf, folder: Path, *, why: str) -> None:
    """Shows a virtual environment, its interpreter, and what is installed in place in it."""
    shelf.show(folder, kind="venv", why=why)
    for home in _homes_of(folder):
        # A stranger's repository may hold an environment: nothing but an interpreter is shown for it.
        if _holds_interpreter(home):
            show_interpreter(shelf, home, why=f"the interpreter of {folder}")
        else:
            shelf.refuse(home, "no interpreter lies there")
    for target, file in sorted(_editable_targets(folder).items()):
        if target.is_relative_to(shelf.root):
            continue
        if shelf.is_of_base(file):
            shelf.refuse(target, NAMED_BY_REPOSITORY)
        else:
            shelf.show(target, kind="editable", why=f"installed in place in {folder}")


def _holds_interpreter(home: Path) -> bool:
    try:
        return any(os.path.isfile(program) for program in home.glob("python*"))
    except OSError:
        return False


def _homes_of(folder: Path) -> Iterator[Path]:
    """Folders that hold the environment's interpreter: as its configuration says, and along the links."""
    for line in _read(folder / "pyvenv.cfg").splitlines():
        key, found, value = line.partition("=")
        if found and key.strip().lower() == "home" and value.strip().startswith("/"):
            yield Path(value.strip())
    for name in ("python", "python3"):
        link = folder / "bin" / name
        for _ in range(_MAX_LINKS):
            if not link.is_symlink():
                break
            link = Path(os.path.normpath(link.parent / os.readlink(link)))
            if link.parent != folder / "bin":
                yield link.parent


def show_interpreter(shelf: Shelf, home: Path, *, why: str) -> None:
    """Shows the installation that a `bin` folder belongs to, or the folder alone where that is too much."""
    prefix = home.parent if home.name == "bin" else home
    if not is_python_prefix(prefix) or not shelf.show(prefix, kind="interpreter", why=why):
        shelf.show(home, kind="interpreter", why=why)
        return
    for part in _linked_parts(prefix):
        target = Path(os.path.realpath(part))
        installation = target.parent.parent if target.parent.name in ("bin", "lib", "lib64") else target
        if is_python_prefix(installation):
            shelf.show(installation, kind="interpreter", why=f"{part} leads there")
        elif os.path.isdir(target):
            shelf.show(target, kind="interpreter", why=f"{part} leads there")


def _linked_parts(prefix: Path) -> Iterator[Path]:
    """Parts of an installation that are links: its programs or its library lie in another one."""
    for pattern in ("bin/python3*", "lib", "lib64", "lib/python3*", "lib64/python3*"):
        for part in sorted(prefix.glob(pattern)):
            if part.is_symlink() and not Path(os.path.realpath(part)).is_relative_to(
                os.path.realpath(prefix)
            ):
                yield part


def is_python_prefix(folder: Path) -> bool:
    """Whether Python's own library lies there."""
    return any((folder / "lib").glob("python3*")) or any((folder / "lib64").glob("python3*"))


# ---- what is installed in place


def _points_into(environment: Path, root: Path) -> bool:
    return any(target.is_relative_to(root) for target in _editable_targets(environment))


def _editable_targets(environment: Path) -> dict[Path, Path]:
    """Folders that an environment's packages are taken from without having been copied into it.

    Each with a file that names it.
    """
    found: dict[Path, Path] = {}
    for site in (
        *environment.glob("lib/python3*/site-packages"),
        *environment.glob("lib64/python3*/site-packages"),
    ):
        for pattern, read in (("*.pth", _paths_in), ("*.dist-info/direct_url.json", _folder_of)):
            for entry in sorted(site.glob(pattern))[:_MAX_FILES]:
                for path in read(_read(entry)):
                    if os.path.isdir(path):
                        found.setdefault(Path(os.path.realpath(path)), entry)
    return found


def _paths_in(text: str) -> set[Path]:
    lines = (line.strip() for line in text.splitlines())
    return {Path(line) for line in lines if line.startswith("/")}


def _folder_of(text: str) -> set[Path]:
    try:
        said: Any = json.loads(text)
        editable = said["dir_info"].get("editable") is True
        url = urlsplit(str(said["url"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()
    if not editable or url.scheme != "file" or not url.path.startswith("/"):
        return set()
    return {Path(unquote(url.path))}


# ---- pyenv, conda


def _show_pyenv(shelf: Shelf, pyenv: Path, environ: Mapping[str, str]) -> None:
    """Shows the versions in use instead of the shims, which need the whole of pyenv and cost time."""
    for version in _pyenv_versions(shelf.root, pyenv, environ):
        folder = pyenv / "versions" / version
        if os.path.isfile(folder / "pyvenv.cfg"):
            show_environment(shelf, folder, why=f"pyenv version {version}")
        elif not shelf.show(folder, kind="pyenv", why=f"pyenv version {version}"):
            continue
        shelf.add_to_path(folder / "bin")


def _pyenv_versions(root: Path, pyenv: Path, environ: Mapping[str, str]) -> list[str]:
    stated = environ.get("PYENV_VERSION", "").replace(":", "\n")
    for folder in (root, *root.parents):
        stated = stated or _read(folder / ".python-version")
    stated = stated or _read(pyenv / "version")
    wanted = [line.strip() for line in stated.splitlines() if _VERSION.match(line.strip())]
    installed = [entry.name for entry in _entries(pyenv / "versions") if os.path.isdir(entry)]
    found: list[str] = []
    for name in wanted:
        exact = [version for version in installed if version == name]
        # `3.11` means the newest installed 3.11.x.
        newest = sorted((v for v in installed if v.startswith(f"{name}.")), key=_by_number)[-1:]
        found += exact or newest
    return found


def _by_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _show_conda(shelf: Shelf, environ: Mapping[str, str]) -> None:
    """Shows the active environment of conda or mamba, else the one that the project names."""
    for folder, why in _conda_environments(shelf, environ):
        if not folder.is_absolute() or not os.path.isdir(folder / "conda-meta"):
            continue
        if shelf.show(folder, kind="conda", why=why):
            shelf.add_to_path(folder / "bin")
            shelf.environment["CONDA_PREFIX"] = str(folder)
            return


def _conda_environments(shelf: Shelf, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    active = environ.get("CONDA_PREFIX", "")
    if active.startswith("/"):
        yield Path(active), "CONDA_PREFIX"
    for file in ("environment.yml", "environment.yaml"):
        named = _CONDA_NAME.search(_read(shelf.root / file))
        for root in _conda_roots(shelf, environ) if named else ():
            yield root / "envs" / str(named and named.group(1)), f"{file} names it"


def _conda_roots(shelf: Shelf, environ: Mapping[str, str]) -> Iterator[Path]:
    said = environ.get("MAMBA_ROOT_PREFIX", "")
    if said.startswith("/"):
        yield Path(said)
    for name in ("CONDA_EXE", "MAMBA_EXE"):
        if environ.get(name, "").startswith("/"):
            yield Path(environ[name]).parent.parent
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda"):
        yield shelf.home / name
    yield Path("/opt/conda")


def _show_user_site(shelf: Shelf) -> None:
    for site in sorted((shelf.home / ".local" / "lib").glob("python3*/site-packages")):
        shelf.show(site, kind="user-site", why="packages installed for the user")


def _read(path: Path) -> str:
    """A small text file; empty when it isn't one, or can't be read."""
    try:
        if not os.path.isfile(path) or path.stat().st_size > _MAX_FILE_BYTES:
            return ""
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where it can't be read: PATH may name another user's."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
