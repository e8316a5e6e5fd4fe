"""A normal Python project works in a checkout: interpreters, environments, installs in place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from git_repository import make_repository
from keeper_places import place, run
from remit.workspaces import Mount, find_toolchains
from service_kit import node_of


def lay_out_version(folder: Path) -> Path:
    """An interpreter in a pyenv-style `versions/` folder: an own program, the running one's library."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python3"
    shutil.copy2(Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}", program)
    for name in ("lib", "lib64"):
        if (Path(sys.base_prefix) / name).is_dir():
            (folder / name).symlink_to(Path(sys.base_prefix) / name)
    return program


def make_environment(python: Path, folder: Path) -> Path:
    """A virtual environment without pip; its `site-packages`."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, capture_output=True)
    return next(folder.glob("lib/python3*/site-packages"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    (folder / ".netrc").write_text("machine example.invalid password secret")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_installed_in_place_in_an_environment_on_a_version_of_its_own(
    tmp_path: Path, home: Path, where: str
) -> None:
    """A package installed in place is the checkout's, in an environment inside or outside the tree."""
    python = lay_out_version(home / ".pyenv" / "versions" / "3.99.1")
    async with place(tmp_path) as here:
        package = here.root / "src" / "package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("ANSWER = 1\n")
        folder = here.root / ".venv" if where == "inside" else home / "envs" / "project"
        site = make_environment(python, folder)
        (site / "__editable__.package-0.1.pth").write_text(f"{here.root / 'src'}\n")
        environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder)}
        toolchains = find_toolchains(here.root, environ=environ, data=here.data)
        checkout = await here.open(toolchains=toolchains)
        text = (
            "echo 'ANSWER = 2' > src/package/__init__.py; "
            "python -c 'import sys, package, ssl, sqlite3; "
            "print(package.ANSWER, package.__file__, sys.prefix)'; "
            "cat ~/.netrc; ls ~/.pyenv/versions; command -v python"
        )
        result = await run(checkout, text)
        assert result.stdout.decode().splitlines() == [
            f"2 {package / '__init__.py'} {folder}",
            "3.99.1",
            str(folder / "bin" / "python"),
        ], result.text
        assert (package / "__init__.py").read_text() == "ANSWER = 1\n"
        written = await run(
            checkout, f"touch {folder}/new && echo written; touch {python.parent}/new && echo written"
        )
        assert written.stdout == (b"written\n" if where == "inside" else b"")
        assert not (folder / "new").exists()


async def test_the_environment_of_these_tests_works_in_a_checkout(tmp_path: Path, home: Path) -> None:
    """The environment that runs this very test, with compiled packages, imports and runs in a sandbox."""
    del home
    async with place(tmp_path) as here:
        (here.root / "test_it.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
        environ = {"PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin", "VIRTUAL_ENV": sys.prefix}
        toolchains = find_toolchains(here.root, environ=environ, data=here.data)
        checkout = await here.open(toolchains=toolchains)
        text = (
            "python -c 'import pydantic; print(pydantic.VERSION)' && "
            "python -m pytest -q -p no:cacheprovider test_it.py"
        )
        result = await run(checkout, text)
        assert result.exit_code == 0, result.text
        assert "1 passed" in result.text


async def test_a_workspace_without_any_environment_finds_a_python(tmp_path: Path, home: Path) -> None:
    """Where neither the workspace nor the system brings one, the interpreter that Remit runs on is shown."""
    del home
    async with place(tmp_path) as here:
        toolchains = find_toolchains(here.root, environ={"PATH": "/usr/bin:/bin"}, data=here.data)
        checkout = await here.open(toolchains=toolchains)
        result = await run(checkout, "python3 -c 'import sys; print(sys.version_info[0])'")
        assert result.text == "3\n"


async def test_folder_that_holds_the_data_is_not_shown(tmp_path: Path, home: Path) -> None:
    """R36: a folder that holds Remit's data isn't shown, although a setting asks for it."""
    del home
    outer = tmp_path.resolve() / "shared"
    outer.mkdir()
    (outer / "data").mkdir()
    (outer / "tool").write_text("tool\n")
    async with place(tmp_path) as here:
        toolchains = find_toolchains(here.root, environ={}, data=outer / "data", path=(outer,))
        assert toolchains.read_only == ()
        assert toolchains.refused[0].reason == "it holds Remit's own data"


async def test_credentials_in_a_shown_folder_read_as_empty(tmp_path: Path, home: Path) -> None:
    """R36: a covered file is there and empty, and can't be written."""
    del home
    tools = tmp_path.resolve() / "tools"
    (tools / "bin").mkdir(parents=True)
    (tools / "pip.conf").write_text("secret\n")
    (tools / "bin" / "hello").write_text("#!/bin/sh\necho hello\n")
    (tools / "bin" / "hello").chmod(0o755)
    async with place(tmp_path) as here:
        toolchains = find_toolchains(here.root, environ={}, path=(tools, tools / "bin"))
        checkout = await here.open(toolchains=toolchains)
        text = f"hello; cat {tools}/pip.conf; echo x > {tools}/bin/hello; hello"
        result = await run(checkout, text)
        assert result.stdout == b"hello\nhello\n"


async def test_node_rust_go_and_java_of_a_home_folder(tmp_path: Path, home: Path) -> None:
    """Each language's program runs from its own folder; downloads are added to for this checkout only."""
    environ = lay_out_languages(home)
    async with place(tmp_path) as here:
        for mark in ("package.json", "Cargo.toml", "go.mod", "pom.xml"):
            (here.root / mark).touch()
        toolchains = find_toolchains(here.root, environ=environ, home=home, data=here.data)
        checkout = await here.open(toolchains=toolchains)
        said = await run(checkout, "for tool in node cargo go java mvn; do $tool; done; echo $JAVA_HOME")
        assert said.stdout.decode().splitlines() == [
            f"node from {home}/.nvm/versions/node/v20.1.0",
            f"cargo from {home}/.rustup/toolchains/stable-x",
            f"go from {home}/sdk/go1.22",
            f"java from {home}/.sdkman/candidates/java/current",
            f"mvn from {home}/.sdkman/candidates/maven/current",
            f"{home}/.sdkman/candidates/java/current",
        ], said.text
        for cache in (".npm/_cacache", ".cargo/registry", "go/pkg/mod", ".m2/repository"):
            added = await run(checkout, f"cat ~/{cache}/kept && echo new > ~/{cache}/new && ls ~/{cache}")
            assert added.stdout == b"kept\nkept\nnew\n", added.text
            assert [entry.name for entry in (home / cache).iterdir()] == ["kept"]
        other = await here.open("other", toolchains=toolchains)
        assert (await run(other, "ls ~/.npm/_cacache")).stdout == b"kept\n"


SECRETS = (
    *(".netrc", ".npmrc", ".npm/_logs/debug.log", ".cargo/credentials.toml", ".cargo/config.toml"),
    *(".m2/settings.xml", ".gradle/gradle.properties", ".config/pip/pip.conf", ".sdkman/etc/config"),
    *(".nvm/versions/node/v20.1.0/etc/npmrc", ".sdkman/candidates/maven/3.9/conf/settings.xml"),
    *(".ssh/id_ed25519", ".config/go/env", "notes.txt"),
)


async def test_no_credential_file_of_a_toolchain_can_be_read(tmp_path: Path, home: Path) -> None:
    """R36: neither by its name, nor by a search of everything that is shown, nor by writing over it."""
    environ = lay_out_languages(home)
    for name in SECRETS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("<password>canary-77</password> token _authToken user:canary-77@host")
    async with place(tmp_path) as here:
        for mark in ("package.json", "Cargo.toml", "go.mod", "pom.xml"):
            (here.root / mark).touch()
        mounted = [Mount(source=home / ".cargo"), Mount(source=home / ".m2", writable=True)]
        for mounts in ((), mounted):
            toolchains = find_toolchains(here.root, environ=environ, home=home, data=here.data, mounts=mounts)
            checkout = await here.open(f"c{len(mounts)}", toolchains=toolchains)
            script = f"cd {home}; for name in {' '.join(SECRETS)}; do cat $name; echo over > $name; done"
            by_name = await run(checkout, script)
            found = await run(checkout, f"grep -rs canary-77 {home} /etc /usr/share/maven; echo done")
            assert b"canary-77" not in by_name.stdout + by_name.stderr
            assert found.stdout == b"done\n", found.text
    assert all("canary-77" in (home / name).read_text() for name in SECRETS)


def lay_out_languages(home: Path) -> dict[str, str]:
    """A home folder with four languages, whose programs say where they lie; and its environment."""
    folders = {
        "node": home / ".nvm/versions/node/v20.1.0",
        "cargo": home / ".rustup/toolchains/stable-x",
        "go": home / "sdk/go1.22",
        "java": home / ".sdkman/candidates/java/21",
        "mvn": home / ".sdkman/candidates/maven/3.9",
    }
    for name, folder in folders.items():
        program = folder / "bin" / name
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\nhere=$(readlink -f "$0")\necho "${0##*/} from ${here%/bin/*}"\n')
        program.chmod(0o755)
    for name, version in (("java", "21"), ("maven", "3.9")):
        (home / ".sdkman/candidates" / name / "current").symlink_to(version)
    (folders["go"] / "VERSION").write_text("go1.22")
    (folders["go"] / "src").mkdir()
    for cache in (".npm/_cacache", ".cargo/registry", "go/pkg/mod", ".m2/repository"):
        (home / cache).mkdir(parents=True)
        (home / cache / "kept").write_text("kept\n")
    path = [folders["node"] / "bin", folders["go"] / "bin", home / ".sdkman/candidates/java/current/bin"]
    return {"PATH": ":".join([*map(str, path), "/usr/bin", "/bin"])}


REAL = {"node": "node -e 'console.log(6*7)'", "java": "java -XshowSettings:none -version 2>&1 && echo 42"}


@pytest.mark.parametrize("program", [name for name in REAL if name == "node" or shutil.which(name)])
async def test_a_real_toolchain_of_the_system_runs(tmp_path: Path, program: str) -> None:
    """Node and Java as a distribution installs them, with parts in /etc, work where they are there."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} isn't installed")
    async with place(tmp_path) as here:
        toolchains = find_toolchains(here.root, environ=dict(os.environ), data=here.data)
        result = await run(await here.open(toolchains=toolchains), REAL[program])
        assert (result.exit_code, result.text.splitlines()[-1]) == (0, "42"), result.text


async def test_an_environment_of_the_repository_shows_nothing_else(tmp_path: Path) -> None:
    """R34, R36: a committed `.venv` names a folder of the machine, which its commands don't see."""
    private = tmp_path / "private"
    (private / "bin").mkdir(parents=True)
    (private / "bin/data.txt").write_text("private\n")
    site = ".venv/lib/python3.11/site-packages"
    planted = {".venv/pyvenv.cfg": f"home = {private}/bin\n", f"{site}/x.pth": f"{private}\n"}
    root = make_repository(tmp_path.resolve() / "app", {"a.txt": "a\n", **planted})
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare()
        said = f"{private.resolve()} isn't shown to commands: only a file of the repository names it"
        assert any(note.startswith(said) for note in prepared.notes), prepared.notes
        await node.ask_open(prepared.base)
        seen = await node.tool("run_shell", command=f"cat {private}/bin/data.txt; ls {private}")
        assert "private\n" not in seen.content
        assert seen.exit_code != 0
