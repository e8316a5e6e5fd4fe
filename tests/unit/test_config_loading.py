"""Settings: where they come from, which win, and what a wrong one is answered with."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from remit.config import Config, load_config, pool_of_model, with_default_model
from remit.config import _load as loading
from remit.config._environment import environment_settings
from remit.config._local import LocalServer
from remit.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def load(home: Path, folder: Path, **more: object) -> Config:
    environment = {"HOME": str(home), **more.pop("environment", {})}  # type: ignore[dict-item] - it is a mapping
    return load_config(environment=environment, folder=folder, **more)  # type: ignore[arg-type] - any of its arguments


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_any_file_there_are_defaults(home: Path, tmp_path: Path) -> None:
    """Without config: bindings reviewed and direct, at most 5 USD a run, data below the home folder."""
    config = load(home, tmp_path)
    assert config.default_binding == "reviewed"
    assert config.bindings["reviewed"].limits.max_cost_usd == Decimal(5)
    assert config.data == home / ".local/share/remit"
    assert config.files == ()


def test_folders_from_the_environment(home: Path, tmp_path: Path) -> None:
    """REMIT_HOME wins over XDG_DATA_HOME, which wins over the home folder."""
    named = {"REMIT_HOME": str(tmp_path / "r"), "XDG_DATA_HOME": str(tmp_path / "x")}
    assert load(home, tmp_path, environment=named).data == tmp_path / "r"
    assert (
        load(home, tmp_path, environment={"XDG_DATA_HOME": str(tmp_path / "x")}).data == tmp_path / "x/remit"
    )


def test_flags_win_over_environment_over_file(home: Path, tmp_path: Path) -> None:
    """Flags > environment > nearest file > the user's own file > default."""
    write(home / ".config/remit/remit.toml", "[host]\nmax_running = 1\nmax_queued = 1\nlink_grace_ms = 1\n")
    write(tmp_path / "p/remit.toml", "[host]\nmax_queued = 2\nlink_grace_ms = 2\n")
    environment = {"REMIT_HOST__LINK_GRACE_MS": "3"}
    config = load(home, tmp_path / "p", environment=environment)
    assert (config.host.max_running, config.host.max_queued, config.host.link_grace_ms) == (1, 2, 3)
    config = load(home, tmp_path / "p", environment=environment, overrides={"host": {"link_grace_ms": 4}})
    assert config.host.link_grace_ms == 4
    assert len(config.files) == 2


def test_a_file_is_found_upwards(home: Path, tmp_path: Path) -> None:
    """The nearest remit.toml upwards from the folder counts."""
    write(tmp_path / "p/remit.toml", "[host]\nmax_running = 7\n")
    (tmp_path / "p/a/b").mkdir(parents=True)
    assert load(home, tmp_path / "p/a/b").host.max_running == 7


def test_relative_paths_are_relative_to_their_file(home: Path, tmp_path: Path) -> None:
    """A root or a script that is relative means: relative to the file that names it."""
    write(
        tmp_path / "p/remit.toml",
        '[providers.demo]\nkind = "scripted"\nscript = "s.yaml"\n'
        '[[nodes.local.workspaces]]\nref = "app"\nroot = "src"\n',
    )
    config = load(home, tmp_path / "p")
    assert config.workspaces["app"].root == tmp_path / "p/src"
    assert config.providers["demo"].script == str(tmp_path / "p/s.yaml")


@pytest.mark.parametrize("by", ["steps", "a link"])
def test_a_relative_root_is_a_place_without_steps_and_links(home: Path, tmp_path: Path, by: str) -> None:
    """However the file is reached, `--config ../remit.toml` too, a relative root is where it lies."""
    text = '[[nodes.local.workspaces]]\nref = "app"\nroot = "../q/src"\nmounts = ["../data"]\n'
    write(tmp_path / "p/remit.toml", text)
    (tmp_path / "p/a").mkdir()
    (tmp_path / "l").symlink_to(tmp_path / "p")
    named = tmp_path / ("p/a/../remit.toml" if by == "steps" else "l/remit.toml")
    config = load_config(environment={"HOME": str(home)}, folder=tmp_path, named=named)
    assert config.workspaces["app"].root == tmp_path / "q/src"
    assert [mount.source for mount in config.workspaces["app"].mounts] == [tmp_path / "data"]


_WORKSPACE = '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\n'
BAD = [
    ("[host\n", "line 1"),
    ("[host]\nmax_runing = 1\n", "host.max_runing"),
    ("[host]\nmax_running = 0\n", "host.max_running"),
    ("[hosts]\n", "hosts"),
    ('[providers.x]\nkind = "openai-chat"\napi_key = "sk-1"\n', "providers.x.api_key"),
    (
        '[providers.x]\nkind = "zork"\n',
        "`providers.x.kind`: unknown provider kind 'zork'; there are open",
    ),
    ("[bindings.a.limits]\nmax_cost = 1\n", "bindings.a.limits.max_cost"),
    ("[bindings.a.limits]\nmax_cost_usd = -1\n", "bindings.a.limits.max_cost_usd"),
    ("[bindings.a.limits]\nwall_clock_ms = nan\n", "bindings.a.limits.wall_clock_ms"),
    ('[bindings.a]\nname = "b"\n', "bindings.a.name"),
    ('[prices."x:y"]\ninput_usd_per_mtok = 1\n', "prices.x:y"),
    ('[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nchecks = ["no"]\n', "nodes.local.workspaces.0"),
    ('[host]\nlisten = "7433"\n', "host.listen"),
    (
        f'{_WORKSPACE}toolchains = "node"\n',
        "`nodes.local.workspaces.0.toolchains`: must be 'auto', 'none', or",
    ),
    (
        f'{_WORKSPACE}network = "a.example:443"\n',
        "`nodes.local.workspaces.0.network`: must be true, false, or a",
    ),
    (
        f"{_WORKSPACE}setup_network = 443\n",
        "`nodes.local.workspaces.0.setup_network`: must be true, false, or",
    ),
]


@pytest.mark.parametrize(("text", "named"), BAD)
def test_a_wrong_setting_is_named(home: Path, tmp_path: Path, text: str, named: str) -> None:
    """R55: unknown and out-of-range settings are refused; the message names file and line, or the path."""
    file = write(tmp_path / "p/remit.toml", text)
    with pytest.raises(ConfigError) as caught:
        load(home, tmp_path / "p")
    assert named in caught.value.message
    assert str(file) in caught.value.message
    assert "sk-1" not in caught.value.message


def test_a_missing_named_file(home: Path, tmp_path: Path) -> None:
    """A file that is named and isn't there is said so."""
    with pytest.raises(ConfigError, match="isn't there"):
        load(home, tmp_path, named=tmp_path / "no.toml")


def test_unreadable_and_odd_files(home: Path, tmp_path: Path) -> None:
    """Not UTF-8, too large, a folder of that name: a sentence each."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p/remit.toml").write_bytes(b"\n# \xff\n")
    with pytest.raises(ConfigError, match="line 2"):
        load(home, tmp_path / "p")
    (tmp_path / "p/remit.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="1 MiB"):
        load(home, tmp_path / "p")


def test_settings_of_ones_own_that_cant_be_looked_at(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another user's HOME (`sudo -u`, `su`) the settings' place is named, and what to set."""
    real = Path.stat

    def closed(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self.is_relative_to(home):
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(ConfigError, match="can't be read: Permission denied; set HOME or XDG_CONFIG_HOME"):
        load(home, tmp_path)
    with pytest.raises(ConfigError, match=r"can't be read: Permission denied$"):
        load(tmp_path, tmp_path, named=home / "remit.toml")


def test_environment_settings() -> None:
    """REMIT_A__B is a.b, JSON where it parses; names with meanings of their own aren't settings."""
    found = environment_settings(
        {
            "REMIT_HOST": "http://x",
            "REMIT_HOME": "/x",
            "REMIT_HOST__MAX_RUNNING": "3",
            "REMIT_A__B__C": "text",
        }
    )
    assert found == {"host": {"max_running": 3}, "a": {"b": {"c": "text"}}}


# ---- providers


def test_a_provider_without_its_key_is_refused_when_used(home: Path, tmp_path: Path) -> None:
    """The message names the variable to set; nothing is refused before it is used."""
    config = load(home, tmp_path)
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        config.get_provider("openai")
    with_key = load(home, tmp_path, environment={"OPENAI_API_KEY": "sk-secret-1"})
    settings = with_key.get_provider("openai")
    assert settings.api_key is not None
    assert "sk-secret-1" not in repr(settings)
    assert "sk-secret-1" not in repr(with_key)


def test_an_unknown_provider_is_named(home: Path, tmp_path: Path) -> None:
    """The message says which providers there are."""
    with pytest.raises(ConfigError, match=r"no provider `nobody`.*openai"):
        load(home, tmp_path).get_provider("nobody")


def test_folders_that_a_workspace_lists_are_seen_from_their_file(home: Path, tmp_path: Path) -> None:
    """Mounts (`:rw` or a table), `path` and `toolchains` may be relative, or begin with the home folder."""
    text = """
    [[nodes.local.workspaces]]
    ref = "app"
    root = "."
    mounts = ["data:rw", "~/corpus:ro", { source = "other", writable = true }]
    path = ["~/bin", "tools"]
    toolchains = ["sdk"]
    """
    write(tmp_path / "remit.toml", text)
    workspace = load(home, tmp_path).workspaces["app"]
    assert [(mount.source, mount.writable) for mount in workspace.mounts] == [
        (tmp_path / "data", True),
        (Path("~/corpus").expanduser(), False),
        (tmp_path / "other", True),
    ]
    assert workspace.path == (Path("~/bin").expanduser(), tmp_path / "tools")
    assert workspace.toolchains == (tmp_path / "sdk",)


def test_keys_from_files(home: Path, tmp_path: Path) -> None:
    """A key file holds the key and nothing else; an empty or missing one is said so."""
    key = write(tmp_path / "key", "sk-from-file\n")
    text = '[providers.o]\nkind = "openai-chat"\napi_key_file = "key"\n'
    write(tmp_path / "remit.toml", text)
    settings = load(home, tmp_path).get_provider("o")
    assert settings.api_key is not None
    assert settings.api_key.reveal() == "sk-from-file"
    key.write_text("\n")
    with pytest.raises(ConfigError, match="empty"):
        load(home, tmp_path).get_provider("o")
    key.unlink()
    with pytest.raises(ConfigError, match="can't be read"):
        load(home, tmp_path).get_provider("o")


def test_the_default_model(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first provider with a key, then a local server, else a sentence that says what to do."""
    keyed = with_default_model(load(home, tmp_path, environment={"OPENAI_API_KEY": "sk-x"}))
    assert keyed.pools["default"].members[0].model == "openai:gpt-5.2"
    assert "OPENAI_API_KEY" in keyed.notes[0]
    claude = with_default_model(load(home, tmp_path, environment={"ANTHROPIC_API_KEY": "sk-x"}))
    assert claude.pools["default"].members[0].model == "anthropic:claude-sonnet-5-5"
    assert claude.get_provider("anthropic").kind == "anthropic"
    monkeypatch.setattr(loading, "find_local_server", lambda: None)
    with pytest.raises(
        ConfigError, match=r"set OPENAI_API_KEY, .* or OPENROUTER_API_KEY, or name one"
    ) as none:
        with_default_model(load(home, tmp_path))
    assert "[pools.default]" in none.value.message  # `remit serve` and `remit models` take no --model


@pytest.mark.parametrize(
    ("variable", "kind"),
    [("GEMINI_API_KEY", "google"), ("GOOGLE_API_KEY", "google"), ("OPENROUTER_API_KEY", "openrouter")],
)
def test_each_key_is_found(home: Path, tmp_path: Path, variable: str, kind: str) -> None:
    """Every kind that a key alone makes usable is found by its key, and said with its variable."""
    keyed = with_default_model(load(home, tmp_path, environment={variable: "k-0123456789"}))
    name = keyed.pools["default"].members[0].provider_name
    provider = keyed.get_provider(name)
    assert (provider.kind, variable in keyed.notes[0]) == (kind, True)
    assert provider.api_key is not None
    assert provider.api_key.reveal() == "k-0123456789"


def test_a_server_of_ones_own(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server found on this machine is named, free, and spoken to in its own form where it has one."""
    servers = {
        "ollama": LocalServer("http://127.0.0.1:11434/v1", "tiny:1b", "ollama"),
        "openai-compatible": LocalServer("http://127.0.0.1:8080/v1", "tiny.gguf"),
    }
    for kind, server in servers.items():
        monkeypatch.setattr(loading, "find_local_server", lambda server=server: server)
        found = with_default_model(load(home, tmp_path))
        model = f"local:{server.model}"
        assert (found.get_provider("local").kind, found.pools["default"].members[0].model) == (kind, model)
        assert found.prices[model].free
        assert server.base_url in found.notes[0]


def test_ollama_needs_no_table(home: Path, tmp_path: Path) -> None:
    """`--model ollama:NAME` asks the server on this machine, without a key."""
    provider = load(home, tmp_path).get_provider("ollama")
    assert (provider.url, provider.api_key) == ("http://127.0.0.1:11434", None)


def test_a_binding_keeps_checkouts_as_its_workspace_says(home: Path, tmp_path: Path) -> None:
    """`preserve` of a workspace holds where its binding has none of its own."""
    text = '[[nodes.local.workspaces]]\nref = "app"\nroot = "."\npreserve = "always"\n'
    text += '[bindings.usual]\nworkspace = "app"\n[bindings.own]\nworkspace = "app"\npreserve = "never"\n'
    text += '[bindings.elsewhere]\nworkspace = "of-a-node"\n'
    config = load(home, tmp_path, named=write(tmp_path / "remit.toml", text))
    kept = {name: binding.preserve for name, binding in config.bindings.items()}
    assert kept == {"usual": "always", "own": "never", "elsewhere": "failed"}


def test_models_are_name_and_model() -> None:
    """`--model gpt` isn't a model; the message shows how one is written."""
    for wrong in ("gpt-5.2", ":x", "x:", "a b:c", ""):
        with pytest.raises(ConfigError, match="NAME:MODEL"):
            pool_of_model(wrong)
    assert pool_of_model("o:vendor/model:tag").members[0].model == "o:vendor/model:tag"
