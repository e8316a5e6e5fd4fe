"""Node, Rust, Go, Java and conda: what the project asks for is shown, as that exact folder, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remit.workspaces import Toolchains, find_toolchains


class Layout:
    """A home folder, a workspace and tools, as files that no program reads."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.root = self.home / "project"
        self.data = self.home / ".local" / "share" / "remit"
        for folder in (self.root, self.data):
            folder.mkdir(parents=True)

    def write(self, path: Path, text: str = "") -> Path:
        """A file, with the folders that it lies in."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, path: Path) -> Path:
        """A program that does nothing."""
        self.write(path, "#!/bin/sh\n").chmod(0o755)
        return path

    def find(self, *path: Path, **variables: str) -> Toolchains:
        """What is found with that PATH and those variables."""
        environ = {"PATH": ":".join(map(str, path or (Path("/nowhere"),))), **variables}
        return find_toolchains(self.root, environ=environ, home=self.home, data=self.data)


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = Layout(tmp_path.resolve())
    monkeypatch.setenv("HOME", str(made.home))
    return made


# ---- Node


@pytest.mark.parametrize(
    ("stated", "alias", "shown"),
    [
        ("20\n", "", "v20.11.0"),
        ("v18.2.0", "", "v18.2.0"),
        ("20.9", "", "v20.9.1"),
        ("", "20.9.1", "v20.9.1"),
        ("", "node", "v20.11.0"),
        ("../../secret", "", None),
        ("16", "", None),
        ("", "", None),
    ],
)
def test_nvm_version_that_the_project_asks_for(
    layout: Layout, stated: str, alias: str, shown: str | None
) -> None:
    """`.nvmrc`, else nvm's default, chooses the version; nothing else of nvm is shown."""
    versions = layout.home / ".nvm" / "versions" / "node"
    for version in ("v18.2.0", "v20.9.1", "v20.11.0"):
        layout.program(versions / version / "bin" / "node")
    layout.write(layout.root / "package.json", "{}")
    layout.write(layout.root / ".nvmrc", stated)
    layout.write(layout.home / ".nvm" / "alias" / "default", alias)
    found = layout.find()
    node = [item.folder for item in found.items if item.kind == "node"]
    assert node == ([versions / shown] if shown else [])
    assert (str(versions / str(shown) / "bin") in found.path) == bool(shown)


def test_nvm_folder_on_path_is_shown_whole(layout: Layout) -> None:
    """What nvm has put on PATH needs its library beside `bin`; its home folder isn't shown."""
    version = layout.home / ".nvm" / "versions" / "node" / "v20.11.0"
    layout.program(version / "bin" / "node")
    found = layout.find(version / "bin")
    assert found.read_only == (version,)
    assert found.path[0] == str(version / "bin")


def test_fnm_folder_of_one_shell_means_the_installation(layout: Layout) -> None:
    """Fnm's folder on PATH is a link of one shell: the installation that it leads to stands in PATH."""
    installation = layout.home / ".local/share/fnm/node-versions/v20.1.0/installation"
    layout.program(installation / "bin" / "node")
    shell = layout.base / "run" / "fnm_multishells" / "77"
    shell.parent.mkdir(parents=True)
    shell.symlink_to(installation)
    found = layout.find(shell / "bin")
    assert found.read_only == (installation,)
    assert found.path[0] == str(installation / "bin")


def test_volta_tools_instead_of_its_shims(layout: Layout) -> None:
    """The versions that `package.json` pins, else the user's; the rest of Volta isn't shown."""
    image = layout.home / ".volta" / "tools" / "image"
    for tool, version in (("node", "20.1.0"), ("node", "18.0.0"), ("yarn", "4.0.2")):
        layout.program(image / tool / version / "bin" / tool)
    layout.program(layout.home / ".volta" / "bin" / "node")
    layout.write(layout.root / "package.json", json.dumps({"volta": {"node": "18.0.0"}}))
    platform = {"node": {"runtime": "20.1.0", "npm": None}, "yarn": "4.0.2"}
    layout.write(layout.home / ".volta/tools/user/platform.json", json.dumps(platform))
    found = layout.find(layout.home / ".volta" / "bin")
    assert {image / "node" / "18.0.0", image / "yarn" / "4.0.2"} <= set(found.read_only)
    assert image / "node" / "20.1.0" not in found.read_only
    assert found.path[:2] == (str(image / "node/18.0.0/bin"), str(image / "yarn/4.0.2/bin"))


@pytest.mark.parametrize("text", ["", "[]", '{"volta": 7}', '{"volta": {"node": ["x"]}}', "{", "\0"])
def test_nonsense_in_package_json_finds_nothing(layout: Layout, text: str) -> None:
    """A file that anybody may have written is read as data, whatever it says."""
    layout.program(layout.home / ".volta" / "bin" / "node")
    layout.write(layout.root / "package.json", text)
    assert [item for item in layout.find(layout.home / ".volta/bin").items if item.kind == "node"] == []


def test_caches_of_package_managers_without_their_settings(layout: Layout) -> None:
    """Downloads of npm, pnpm and yarn are caches; the folders that hold tokens beside them aren't shown."""
    layout.write(layout.root / "package.json", "{}")
    wanted = (
        *(".npm/_cacache", ".local/share/pnpm/store", ".pnpm-store", ".cache/yarn", ".yarn/berry/cache"),
        ".cache/node/corepack",
    )
    for name in wanted:
        layout.write(layout.home / name / "content")
    layout.write(layout.home / ".npmrc", "//registry.example/:_authToken=secret")
    layout.write(layout.home / ".npm/_logs/debug.log", "secret")
    found = layout.find()
    assert set(found.caches) == {layout.home / name for name in wanted}
    assert not set(found.caches) & set(found.read_only)


def test_caches_only_for_languages_that_are_used(layout: Layout) -> None:
    """A workspace without a mark of a language gets nothing of it; one in a folder of its own counts."""
    for name in (".npm/_cacache", ".cargo/registry", "go/pkg/mod", ".m2/repository"):
        layout.write(layout.home / name / "content")
    assert layout.find().caches == ()
    layout.write(layout.root / "service" / "go.mod", "module x")
    assert layout.find().caches == (layout.home / "go/pkg/mod",)


def test_every_cache_of_compiled_languages(layout: Layout) -> None:
    """What Cargo, Go, Maven and Gradle have downloaded, beside files with credentials, which aren't shown."""
    for mark in ("Cargo.toml", "go.mod", "pom.xml"):
        layout.write(layout.root / mark)
    wanted = (
        *(".cargo/registry", ".cargo/git", "go/pkg/mod", ".m2/repository", ".m2/wrapper/dists"),
        *(".gradle/caches", ".gradle/wrapper/dists"),
    )
    for name in wanted:
        layout.write(layout.home / name / "content")
    for name in (".cargo/credentials.toml", ".m2/settings.xml", ".gradle/gradle.properties"):
        layout.write(layout.home / name, "secret")
    found = layout.find()
    assert set(found.caches) == {layout.home / name for name in wanted}


# ---- Rust


@pytest.mark.parametrize(
    ("file", "text", "variable", "shown"),
    [
        ("rust-toolchain.toml", '[toolchain]\nchannel = "1.74"\n', "", "1.74.1-x86_64-unknown-linux-gnu"),
        ("rust-toolchain", "nightly-2026-01-01\n", "", "nightly-2026-01-01-x86_64-unknown-linux-gnu"),
        ("other", "", "nightly-2026-01-01", "nightly-2026-01-01-x86_64-unknown-linux-gnu"),
        ("other", "", "", "stable-x86_64-unknown-linux-gnu"),
        ("rust-toolchain.toml", '[toolchain]\nchannel = "../../x"\n', "", "stable-x86_64-unknown-linux-gnu"),
        ("rust-toolchain", "1.2.3\n", "", None),
    ],
)
def test_rust_toolchain_that_the_project_asks_for(
    layout: Layout, file: str, text: str, variable: str, shown: str | None
) -> None:
    """RUSTUP_TOOLCHAIN, the project's file, the default: that toolchain precedes rustup's proxies in PATH."""
    rustup = layout.home / ".rustup"
    names = ("1.74.1", "nightly-2026-01-01", "stable")
    for name in names:
        layout.program(rustup / "toolchains" / f"{name}-x86_64-unknown-linux-gnu" / "bin" / "cargo")
    layout.write(rustup / "settings.toml", 'default_toolchain = "stable-x86_64-unknown-linux-gnu"\n')
    layout.write(layout.root / "Cargo.toml")
    layout.write(layout.root / file, text)
    layout.program(layout.home / ".cargo" / "bin" / "cargo")
    layout.write(layout.home / ".cargo" / "credentials.toml", 'token = "secret"')
    layout.write(layout.home / ".cargo" / "registry" / "index")
    found = layout.find(layout.home / ".cargo" / "bin", RUSTUP_TOOLCHAIN=variable)
    toolchains = [item.folder.name for item in found.items if item.folder.parent == rustup / "toolchains"]
    assert toolchains == ([shown] if shown else [])
    assert found.path[:2][-1 if shown else 0] == str(layout.home / ".cargo" / "bin")
    assert found.caches == (layout.home / ".cargo" / "registry",)
    assert layout.home / ".cargo" not in found.read_only


# ---- Go and Java


def test_go_in_a_home_folder_is_shown_whole(layout: Layout) -> None:
    """`~/sdk/go1.22` on PATH is an installation: `bin/go` alone would find no library."""
    go = layout.home / "sdk" / "go1.22"
    layout.program(go / "bin" / "go")
    layout.write(go / "VERSION", "go1.22")
    (go / "src").mkdir()
    layout.write(layout.root / "go.mod", "module x")
    layout.write(layout.home / "go/pkg/mod/cache/x")
    found = layout.find(go / "bin")
    assert go in found.read_only
    assert found.path[0] == str(go / "bin")
    assert found.caches == (layout.home / "go/pkg/mod",)


def test_java_home_is_shown_and_told(layout: Layout) -> None:
    """JAVA_HOME counts in every workspace, since more than Java's own tools need it."""
    jdk = layout.base / "jdk-21"
    layout.program(jdk / "bin" / "java")
    found = layout.find(JAVA_HOME=str(jdk))
    assert found.read_only == (jdk,)
    assert found.environment["JAVA_HOME"] == str(jdk)
    assert str(jdk / "bin") in found.path


def test_sdkman_chooses_what_the_project_pins(layout: Layout) -> None:
    """`.sdkmanrc` goes before `current`; the folder that both names lead to is shown, not SDKMAN's own."""
    candidates = layout.home / ".sdkman" / "candidates"
    for name in ("java/17.0.9-tem", "java/21.0.1-tem", "maven/3.9.6"):
        layout.program(candidates / name / "bin" / name.split("/")[0])
    (candidates / "java" / "current").symlink_to("21.0.1-tem")
    (candidates / "maven" / "current").symlink_to("3.9.6")
    layout.write(layout.root / "pom.xml", "<project/>")
    layout.write(layout.root / ".sdkmanrc", "# comment\njava=17.0.9-tem\n")
    layout.write(layout.home / ".m2/repository/x")
    layout.write(layout.home / ".m2/settings.xml", "<password>secret</password>")
    found = layout.find(candidates / "java" / "current" / "bin")
    assert found.environment["JAVA_HOME"] == str(candidates / "java" / "17.0.9-tem")
    assert found.path[:2] == (
        str(candidates / "java/17.0.9-tem/bin"),
        str(candidates / "maven/current/bin"),
    )
    assert layout.home / ".m2" not in (*found.read_only, *found.caches)
    assert found.caches == (layout.home / ".m2/repository",)


def test_a_current_that_leads_out_isnt_followed(layout: Layout) -> None:
    """A link of SDKMAN's that leads elsewhere shows nothing."""
    layout.program(layout.home / "private" / "bin" / "java")
    current = layout.home / ".sdkman/candidates/java/current"
    current.parent.mkdir(parents=True)
    current.symlink_to(layout.home / "private")
    layout.write(layout.root / "pom.xml", "<project/>")
    assert layout.find().items == ()


# ---- conda, CI machines, managers of many languages


def test_conda_environment_that_the_project_names(layout: Layout) -> None:
    """`environment.yml` names the environment where none is active; an active one goes first."""
    for name in ("app", "other"):
        layout.write(layout.home / "miniconda3/envs" / name / "conda-meta/history")
    layout.write(layout.root / "environment.yml", 'name: "app"\ndependencies: []\n')
    envs = layout.home / "miniconda3" / "envs"
    assert layout.find().environment["CONDA_PREFIX"] == str(envs / "app")
    assert layout.find(CONDA_PREFIX=str(envs / "other")).environment["CONDA_PREFIX"] == str(envs / "other")


def test_tool_cache_of_a_ci_machine_is_shown_whole(layout: Layout) -> None:
    """RUNNER_TOOL_CACHE holds every version of every tool, and nothing else."""
    cache = layout.base / "hostedtoolcache"
    layout.program(cache / "node/20.1.0/x64/bin/node")
    assert cache in layout.find(RUNNER_TOOL_CACHE=str(cache)).read_only


@pytest.mark.parametrize("manager", [".local/share/mise", ".asdf"])
def test_installs_of_mise_and_asdf_are_shown_whole(layout: Layout, manager: str) -> None:
    """`…/installs/TOOL/VERSION/bin` on PATH brings the version around it."""
    version = layout.home / manager / "installs" / "ruby" / "3.3.0"
    layout.program(version / "bin" / "ruby")
    assert layout.find(version / "bin").read_only == (version,)


def test_folders_of_the_system_on_path_stay_on_path(layout: Layout) -> None:
    """A part of /usr that isn't on a system's usual PATH is kept: `/usr/local/go/bin`."""
    unusual = next(folder for folder in sorted(Path("/usr/lib").iterdir()) if folder.is_dir())
    found = layout.find(unusual)
    assert str(unusual) in found.path
    assert found.read_only == ()


# ---- attacks: files with credentials inside of what is shown


@pytest.mark.parametrize(
    ("name", "text", "covered"),
    [
        ("etc/npmrc", "_authToken=secret", True),
        ("conf/settings.xml", "<server><password>secret</password></server>", True),
        ("conf/settings.xml", "<settings><!-- <password>example</password> --></settings>", False),
        (".condarc", "channels: [https://conda.example/t/secret]", True),
        ("pip.conf", "index-url = https://user:secret@example/simple", True),
        ("config.toml", '[registries.own]\ntoken = "secret"', True),
        ("config.toml", "[build]\njobs = 4\n", False),
        ("gradle.properties", "password=secret", True),
        (".netrc", "machine x password secret", True),
        ("credentials.toml", "x", True),
    ],
)
def test_credential_file_in_a_shown_folder_is_covered(
    layout: Layout, name: str, text: str, covered: bool
) -> None:
    """What may hold a token is covered wherever it lies; what a tool needs and holds none is left."""
    tool = layout.base / "tools" / "one"
    layout.program(tool / "bin" / "tool")
    (tool / "lib").mkdir()
    layout.write(tool / name, text)
    found = layout.find(tool / "bin")
    assert tool in found.read_only
    assert (tool / name in found.masked) is covered


@pytest.mark.parametrize(
    "mark",
    [
        *("lib/node_modules/npm/bin/npm-cli.js", "lib/rustlib/x", "lib/jvm.cfg", "jre/lib/rt.jar"),
        *("boot/plexus-classworlds-2.8.0.jar", "lib/gradle-launcher-8.jar", "lib/ruby/x", "pkg/tool/x"),
    ],
)
@pytest.mark.parametrize("where", ["home", "elsewhere"])
def test_an_unpacked_tool_on_path_is_shown_whole(layout: Layout, mark: str, where: str) -> None:
    """Its programs are nothing without what lies beside them, in whatever folder somebody has unpacked it."""
    tool = (layout.home if where == "home" else layout.base) / "tools" / "some-1.2"
    for name in ("bin/program", mark):
        (tool / name).parent.mkdir(parents=True, exist_ok=True)
        (tool / name).touch(mode=0o755)
    found = layout.find(tool / "bin")
    assert tool in found.read_only
    assert str(tool / "bin") in found.path


def test_a_project_with_programs_of_its_own_isnt_shown_whole(layout: Layout) -> None:
    """R36: a `bin` in a home folder shows itself alone where nothing says that it is a tool's."""
    project = layout.home / "other"
    for name in ("bin/deploy", "lib/code.py", "secrets.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    assert layout.find(project / "bin").read_only == (project / "bin",)
