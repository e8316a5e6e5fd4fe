"""Which folders a workspace's commands get to see: what it uses, each as that exact folder, and no secret."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.workspaces import Mount, Toolchains, find_toolchains
from remit.workspaces._shelf import NAMED_BY_REPOSITORY


class Layout:
    """A home folder, a workspace and tools, as files that no program reads."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.root = self.home / "project"
        self.data = self.home / ".local" / "share" / "remit"
        for folder in (self.root, self.data):
            folder.mkdir(parents=True)

    def interpreter(self, folder: Path) -> Path:
        """An installation of Python."""
        (folder / "bin").mkdir(parents=True)
        (folder / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        for name in ("python3.12", "python3", "python"):
            (folder / "bin" / name).touch(mode=0o755)
        return folder

    def environment(self, folder: Path, *, interpreter: Path) -> Path:
        """A virtual environment on it."""
        (folder / "bin").mkdir(parents=True)
        (folder / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text(f"home = {interpreter / 'bin'}\nversion = 3.12.1\n")
        (folder / "bin" / "python3").symlink_to(interpreter / "bin" / "python3")
        (folder / "bin" / "python").symlink_to("python3")
        return folder

    def find(self, *path: Path, **variables: str) -> Toolchains:
        """What is found with that PATH and those variables."""
        environ = {"PATH": ":".join([*map(str, path), "/usr/bin", "/bin"]), **variables}
        return find_toolchains(self.root, environ=environ, home=self.home, data=self.data)


def python_path(found: Toolchains) -> list[str]:
    """What precedes the system's in PATH, without the folder of a Go that the machine may have."""
    return [folder for folder in found.path if not folder.startswith(("/usr/lib/go", "/usr/local/go"))]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = Layout(tmp_path.resolve())
    monkeypatch.setenv("HOME", str(made.home))
    return made


def test_environment_in_the_tree_brings_its_interpreter(layout: Layout) -> None:
    """`.venv` in the tree is part of it; what its configuration and links name is shown at its own path."""
    versions = layout.home / ".pyenv" / "versions"
    base = layout.interpreter(versions / "3.12.1")
    layout.interpreter(versions / "3.11.9")
    layout.environment(layout.root / ".venv", interpreter=base)
    found = layout.find()
    assert found.read_only == (base,)
    assert found.path[0] == str(layout.root / ".venv" / "bin")
    assert found.environment["VIRTUAL_ENV"] == str(layout.root / ".venv")


def test_active_environment_outside_the_tree_comes_first(layout: Layout) -> None:
    """VIRTUAL_ENV is shown with its interpreter, and precedes everything in PATH."""
    base = layout.interpreter(layout.home / ".pyenv" / "versions" / "3.12.1")
    outside = layout.environment(layout.home / ".virtualenvs" / "project", interpreter=base)
    layout.environment(layout.root / ".venv", interpreter=base)
    found = layout.find(outside / "bin", VIRTUAL_ENV=str(outside))
    assert set(found.read_only) == {outside, base}
    assert found.path[0] == str(outside / "bin")


def test_environment_on_path_alone_is_found(layout: Layout) -> None:
    """An environment whose `bin` is on PATH counts without VIRTUAL_ENV."""
    base = layout.interpreter(layout.base / "opt" / "python")
    outside = layout.environment(layout.base / "envs" / "one", interpreter=base)
    found = layout.find(outside / "bin")
    assert set(found.read_only) == {outside, base}


def test_program_named_by_settings_brings_its_environment(layout: Layout) -> None:
    """A command with an absolute program in an environment makes that environment visible."""
    base = layout.interpreter(layout.base / "opt" / "python")
    outside = layout.environment(layout.base / "envs" / "one", interpreter=base)
    found = find_toolchains(
        layout.root, environ={}, home=layout.home, executables=("pytest", str(outside / "bin" / "pytest"))
    )
    assert {outside, base} <= set(found.read_only)


def test_uv_interpreter_behind_a_linked_folder(layout: Layout) -> None:
    """Uv names its interpreters by a link to a folder: both paths are shown, nothing around them."""
    pythons = layout.home / ".local" / "share" / "uv" / "python"
    real = layout.interpreter(pythons / "cpython-3.12.1-linux-x86_64-gnu")
    link = pythons / "cpython-3.12-linux-x86_64-gnu"
    link.symlink_to(real.name)
    layout.environment(layout.root / ".venv", interpreter=link)
    assert set(layout.find().read_only) == {link, real}


def test_interpreter_whose_parts_are_links_elsewhere(layout: Layout) -> None:
    """An installation made of links to another one needs both."""
    real = layout.interpreter(layout.base / "real")
    versions = layout.home / "versions" / "3.12.1"
    (versions / "bin").mkdir(parents=True)
    (versions / "bin" / "python3").symlink_to(real / "bin" / "python3")
    (versions / "lib").symlink_to(real / "lib")
    layout.environment(layout.root / ".venv", interpreter=versions)
    assert {versions, real} <= set(layout.find().read_only)


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        ("3.12.1\n", ["3.12.1"]),
        ("3.12\n", ["3.12.10"]),
        ("3.11.9\n3.12.1\n", ["3.11.9", "3.12.1"]),
        ("../../..\nsystem\n", []),
    ],
)
def test_pyenv_versions_stand_in_for_its_shims(layout: Layout, stated: str, shown: list[str]) -> None:
    """With pyenv's shims on PATH the versions that the project states are shown, the shims aren't."""
    pyenv = layout.home / ".pyenv"
    for version in ("3.11.9", "3.12.1", "3.12.10"):
        layout.interpreter(pyenv / "versions" / version)
    (pyenv / "shims").mkdir()
    (layout.root / ".python-version").write_text(stated)
    found = layout.find(pyenv / "shims")
    versions = [pyenv / "versions" / name for name in shown]
    assert [folder for folder in found.read_only if folder.is_relative_to(pyenv)] == versions
    assert [folder for folder in found.path if "pyenv" in folder] == [str(v / "bin") for v in versions]
    assert python_path(found)[: len(versions)] == [str(version / "bin") for version in versions]


def test_packages_installed_in_place_are_shown(layout: Layout) -> None:
    """An editable install beside the workspace is shown; one of the workspace itself needs nothing."""
    base = layout.interpreter(layout.base / "opt" / "python")
    outside = layout.environment(layout.base / "envs" / "one", interpreter=base)
    site = outside / "lib" / "python3.12" / "site-packages"
    sibling, third = layout.home / "sibling" / "src", layout.home / "third party"
    (layout.root / "src").mkdir()
    for folder in (sibling, third):
        folder.mkdir(parents=True)
    (site / "project.pth").write_text(f"{layout.root / 'src'}\nimport sys\n{sibling}\n/does/not/exist\n")
    (site / "third-1.0.dist-info").mkdir()
    url = "file://" + str(third).replace(" ", "%20")
    said = json.dumps({"url": url, "dir_info": {"editable": True}})
    (site / "third-1.0.dist-info" / "direct_url.json").write_text(said)
    (site / "broken-1.0.dist-info").mkdir()
    (site / "broken-1.0.dist-info" / "direct_url.json").write_text('["no", "object"]')
    assert set(layout.find(outside / "bin").read_only) == {outside, base, sibling, third}


@pytest.mark.parametrize(
    "folder",
    [
        lambda layout: layout.home,
        lambda layout: layout.home.parent,
        lambda layout: layout.home / ".ssh",
        lambda layout: layout.home / ".aws" / "bin",
        lambda layout: layout.home / ".config" / "gh",
        lambda layout: layout.data,
        lambda layout: layout.data / "bin",
        lambda layout: Path("/"),
        lambda layout: Path("/etc"),
        lambda layout: Path("/tmp"),
    ],
)
def test_what_may_hold_secrets_is_refused_with_its_reason(
    layout: Layout, folder: Callable[[Layout], Path]
) -> None:
    """R36: no home folder, no credentials, none of Remit's own data, whoever names it."""
    path = folder(layout)
    path.mkdir(parents=True, exist_ok=True)
    found = layout.find(path)
    assert not any(path.is_relative_to(shown) or shown == path for shown in found.read_only)
    assert any(refused.folder == path and refused.reason for refused in found.refused)
    asked = find_toolchains(layout.root, environ={}, home=layout.home, data=layout.data, path=(path,))
    assert path not in asked.read_only
    assert str(path) not in asked.path


def test_link_to_a_secret_is_refused(layout: Layout) -> None:
    """R34, R36: a folder that is a link into credentials is judged by where it leads."""
    (layout.home / ".ssh").mkdir()
    link = layout.base / "innocent"
    link.symlink_to(layout.home / ".ssh")
    assert (layout.home / ".ssh") not in layout.find(link).read_only
    assert str(link) not in layout.find(link).path


def test_folder_that_holds_the_workspace_is_refused(layout: Layout) -> None:
    """What is around the workspace isn't shown: the checkout stands in its place."""
    outer = layout.root / "packages" / "inner"
    outer.mkdir(parents=True)
    found = find_toolchains(outer, environ={}, home=layout.home, path=(layout.root,))
    assert found.read_only == ()
    assert found.refused[0].reason == "it holds the workspace"


def test_credentials_inside_a_shown_folder_are_covered(layout: Layout) -> None:
    """R36: credential files in a folder that must be shown are covered, an environment's own pip.conf too."""
    base = layout.interpreter(layout.base / "opt" / "python")
    outside = layout.environment(layout.base / "envs" / "one", interpreter=base)
    (outside / "pip.conf").write_text("index-url = https://user:secret@example.invalid")
    (base / ".netrc").write_text("machine example.invalid password secret")
    found = layout.find(outside / "bin")
    assert set(found.masked) == {outside / "pip.conf", base / ".netrc"}


def test_exact_folder_on_path_inside_home(layout: Layout) -> None:
    """A folder of programs in a home folder is shown alone, with the environments that its links lead to."""
    programs = layout.home / ".local" / "bin"
    programs.mkdir(parents=True)
    base = layout.interpreter(layout.base / "opt" / "python")
    tool = layout.environment(layout.home / ".local" / "share" / "pipx" / "venvs" / "ruff", interpreter=base)
    (tool / "bin" / "ruff").touch()
    (programs / "ruff").symlink_to(tool / "bin" / "ruff")
    (programs / "elsewhere").symlink_to("/etc/passwd")
    found = layout.find(programs)
    assert set(found.read_only) == {programs, tool, base}
    assert (layout.home / ".local") not in found.read_only


def test_settings_decide_over_what_is_found(layout: Layout) -> None:
    """`none` shows nothing, a list exactly its folders; mounts and `path` are added to each."""
    base = layout.interpreter(layout.base / "opt" / "python")
    layout.environment(layout.root / ".venv", interpreter=base)
    shared = layout.base / "shared"
    shared.mkdir()
    none = find_toolchains(layout.root, environ={}, home=layout.home, wanted="none")
    assert (none.read_only, none.path, none.environment) == ((), (), {})
    listed = find_toolchains(
        layout.root,
        environ={},
        home=layout.home,
        wanted=(base,),
        mounts=(Mount(source=shared, writable=True),),
    )
    assert listed.read_only == (base,)
    assert listed.writable == (shared,)
    assert listed.path == (str(base / "bin"),)
    named = find_toolchains(
        layout.root,
        environ={},
        home=layout.home,
        wanted=(base,),
        path=(shared,),
        mounts=(Mount(source=layout.interpreter(layout.base / "opt" / "more")),),
    )
    assert named.path == (str(shared), str(base / "bin"))
    assert named.writable == ()


def test_conda_environment_is_shown(layout: Layout) -> None:
    """CONDA_PREFIX of a real conda environment is shown whole."""
    prefix = layout.interpreter(layout.home / "miniconda3" / "envs" / "one")
    (prefix / "conda-meta").mkdir()
    found = layout.find(CONDA_PREFIX=str(prefix))
    assert prefix in found.read_only
    assert found.environment["CONDA_PREFIX"] == str(prefix)


def test_description_names_every_folder(layout: Layout) -> None:
    """`doctor` says what is shown, what is covered, what isn't and why."""
    base = layout.interpreter(layout.base / "opt" / "python")
    layout.environment(layout.root / ".venv", interpreter=base)
    (base / ".netrc").touch()
    (layout.home / ".ssh").mkdir()
    lines = "\n".join(layout.find(layout.home / ".ssh").describe())
    assert f"interpreter: {base} (the interpreter of {layout.root / '.venv'})" in lines
    assert f"covered: {base / '.netrc'}" in lines
    assert f"not shown: {layout.home / '.ssh'}: it may hold credentials" in lines


def test_broken_configurations_are_no_reason_to_fail(layout: Layout) -> None:
    """Odd bytes, huge files, loops of links and unreadable folders are skipped."""
    venv = layout.root / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_bytes(b"\xff\xfehome = relative/bin\nhome=\n\x00")
    (venv / "bin" / "python").symlink_to("python3")
    (venv / "bin" / "python3").symlink_to("python")
    (venv / "lib" / "python3.12" / "site-packages" / "big.pth").write_bytes(b"/etc\n" * 100_000)
    found = layout.find(Path("/does/not/exist"))
    assert Path("/etc") not in found.read_only
    assert found.path[0] == str(venv / "bin")


def test_remits_own_environment_is_not_taken_for_the_workspaces(layout: Layout) -> None:
    """An active environment that is only where Remit is installed doesn't come before the tree's own."""
    base = layout.interpreter(layout.base / "opt" / "python")
    layout.environment(layout.root / ".venv", interpreter=base)
    found = layout.find(VIRTUAL_ENV=sys.prefix)
    assert found.environment["VIRTUAL_ENV"] == str(layout.root / ".venv")


def test_remits_own_environment_on_path_works(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who installs Remit beside pytest has one environment on PATH: shown with its interpreter."""
    base = layout.interpreter(layout.base / "versions" / "3.12")
    own = layout.environment(layout.base / "own", interpreter=base)
    monkeypatch.setattr(sys, "prefix", str(own))
    found = layout.find(own / "bin")
    assert set(found.read_only) == {own, base}
    assert python_path(found)[0] == str(own / "bin")


def test_folders_that_cant_be_read_are_left_out(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """R55: PATH and the like may name another user's folders, as after `su`: they are no reason to fail."""
    closed = layout.base / "closed"
    names = ("bin", "shims", "venv", "jdk", "cargo", "nvm", "pyenv", "conda")
    for name in names:
        (closed / name).mkdir(parents=True)

    def guarded(inner: Callable[..., Any]) -> Callable[..., Any]:
        def ask(path: Any = ".", *others: Any, **named: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return inner(path, *others, **named)

        return ask

    for name in ("stat", "lstat", "listdir", "scandir"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    variables = ("VIRTUAL_ENV", "JAVA_HOME", "CARGO_HOME", "NVM_DIR", "PYENV_ROOT", "CONDA_PREFIX")
    where = dict(zip(variables, ("venv", "jdk", "cargo", "nvm", "pyenv", "conda"), strict=True))
    found = layout.find(
        closed / "bin", closed / "shims", **{name: str(closed / folder) for name, folder in where.items()}
    )
    assert not [item for item in found.items if item.folder.is_relative_to(closed)]


def test_links_and_scripts_on_path_bring_what_they_need(layout: Layout) -> None:
    """`~/bin` of many tools: each link's installation, at every hop, and each script's interpreter."""
    programs = layout.home / "bin"
    programs.mkdir()
    base = layout.interpreter(layout.base / "python")
    venv = layout.environment(layout.base / "envs" / "one", interpreter=base)
    scripted = layout.environment(layout.base / "envs" / "two", interpreter=base)
    jdk, go, node = (layout.home / "sdk" / name for name in ("jdk", "go", "node"))
    modules = layout.home / ".local" / "lib" / "node_modules"
    for name in (
        *(jdk / "bin/java", jdk / "lib/jvm.cfg", go / "bin/go", go / "VERSION", go / "src/x"),
        *(node / "bin/node", node / "lib/node_modules/npm/bin/npm-cli.js", modules / "tool/cli.js"),
        *(layout.home / "private/tool.sh", layout.home / "private/key"),
    ):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.touch(mode=0o755)
    (programs / "python3").symlink_to(venv / "bin" / "python3")
    (programs / "java").symlink_to("../sdk/jdk/bin/java")
    (programs / "go").symlink_to(go / "bin" / "go")
    (programs / "npm").symlink_to(node / "lib/node_modules/npm/bin/npm-cli.js")
    (programs / "tool").symlink_to(modules / "tool/cli.js")
    (programs / "own").symlink_to(layout.home / "private/tool.sh")
    (programs / "loop").symlink_to(programs / "loop")
    (programs / "pytest").write_text(f"#!{scripted}/bin/python3 -s\nimport pytest\n")
    (programs / "env").write_text("#!/usr/bin/env python3\n")
    (programs / "blob").write_bytes(b"#!" + bytes(range(256)) * 8)
    os.mkfifo(programs / "pipe")
    shown = set(layout.find(programs).read_only)
    assert shown == {programs, base, venv, scripted, jdk, go, node / "lib/node_modules", modules}


def test_a_link_into_a_folder_of_another_user_is_passed_over(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder on PATH with one link into a place that is closed to us stops no run."""
    programs, closed = layout.home / "bin", layout.base / "root"
    programs.mkdir()
    closed.mkdir()
    (programs / "tool").symlink_to(closed / "bin" / "tool")
    real = os.lstat

    def lstat(path: str | Path, **more: int) -> os.stat_result:
        if Path(path).is_relative_to(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **more)

    def stat(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self) if follow_symlinks else lstat(self)

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(Path, "stat", stat)
    assert layout.find(programs).read_only == (programs,)


def test_a_repository_decides_nothing_of_what_is_shown(layout: Layout) -> None:
    """R34, R36: an environment that came with a stranger's repository names an interpreter, or nothing."""
    base = layout.interpreter(layout.home / ".pyenv" / "versions" / "3.12.1")
    private = layout.base / "srv" / "customers"
    (private / "bin").mkdir(parents=True)
    planted = layout.environment(layout.root / ".venv", interpreter=private)
    site = planted / "lib" / "python3.12" / "site-packages"
    (site / "x.pth").write_text(f"{private}\n")
    files = {".venv/lib/python3.12/site-packages/x.pth"}
    found = find_toolchains(layout.root, environ={}, home=layout.home, of_base=files)
    assert not any(folder.is_relative_to(private) for folder in found.read_only)
    refused = {item.folder: item.reason for item in found.refused}
    assert refused == {private / "bin": "no interpreter lies there", private: NAMED_BY_REPOSITORY}
    (planted / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    own = find_toolchains(
        layout.root, environ={}, home=layout.home
    )  # what the user installed, and git ignores
    assert {base, private} <= set(own.read_only)
