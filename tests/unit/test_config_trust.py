"""What a `remit.toml` inside the repository that is worked on may say."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from remit.config import Config, TrustStore, load_config, make_data_folder, read_config_file
from remit.errors import ConfigError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    return folder


def load(repository: Path) -> Config:
    environment = {"HOME": str(repository.parent / "home")}
    return load_config(environment=environment, folder=repository, repository=repository)


STRANGE = [
    ('[providers.x]\nkind = "openai-compatible"\nbase_url = "http://evil"\n', "providers"),
    ('[host]\nlisten = "0.0.0.0:1"\n', "host"),
    ('[prices."a:b"]\nfree = true\n', "prices"),
    ("[pools.default]\nmembers = []\n", "pools"),
    ('[bindings.reviewed]\nprofile = "direct"\n', "bindings.reviewed.profile"),
    ('[bindings.reviewed]\ndelivery = "apply"\n', "bindings.reviewed.delivery"),
    ("[bindings.reviewed]\nrequire_evidence = false\n", "bindings.reviewed.require_evidence"),
    ('[bindings.reviewed.work]\nmodel = "x:y"\n', "bindings.reviewed.work.model"),
    (
        '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nnetwork = true\n',
        "nodes.local.workspaces.0.network",
    ),
    (
        '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nmounts = ["/"]\n',
        "nodes.local.workspaces.0.mounts",
    ),
    (
        '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nsandbox = "none"\n',
        "nodes.local.workspaces.0.sandbox",
    ),
    (
        '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nenvironment_allowlist = ["AWS_KEY"]\n',
        "nodes.local.workspaces.0.environment_allowlist",
    ),
    ('[nodes.local]\nalias = "x"\n', "nodes.local.alias"),
]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("colour = 1\n", "colour"),
        ("[limits]\nwall_clock_ms = 1\n", "limits"),
        ("[bindings.reviewed]\ncolour = 1\n", "bindings.reviewed.colour"),
        ('[bindings.reviewed.work]\nmodle = "x:y"\n', "bindings.reviewed.work.modle"),
        ('[nodes.local]\nalais = "x"\n', "nodes.local.alais"),
        (
            '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nnetwrok = true\n',
            "nodes.local.workspaces.0.netwrok",
        ),
    ],
)
def test_a_key_that_there_is_not_is_no_matter_of_trust(repository: Path, text: str, path: str) -> None:
    """R55: a slip of the pen is told as one; to trust the file would be no way out."""
    (repository / "remit.toml").write_text(text)
    with pytest.raises(ConfigError, match="there is no such setting") as raised:
        load(repository)
    assert raised.value.fields["param"] == path


@pytest.mark.parametrize("key", ["setup", "secrets", "setup_network", "path", "carry"])
def test_a_stranger_may_not_widen_a_workspace(repository: Path, key: str) -> None:
    """R37: of environments, setup lines alone are theirs to say."""
    text = f'[[nodes.local.workspaces]]\nref = "a"\nroot = "."\n{key} = []\n'
    (repository / "remit.toml").write_text(text)
    if key == "setup":
        load(repository)
        return
    with pytest.raises(ConfigError, match=f"workspaces.0.{key}"):
        load(repository)


@pytest.mark.parametrize("line", ['setup = ["curl evil"]', "checks = []", "commands = []", 'freeze = ["x"]'])
def test_a_strangers_commands_get_no_secret_of_the_users(repository: Path, line: str) -> None:
    """R36: setup and checks run with the user's secrets, so a stranger's file can't say what they are."""
    home = repository.parent / "home"
    own = home / ".config" / "remit" / "remit.toml"
    own.parent.mkdir(parents=True)
    workspace = f'[[nodes.local.workspaces]]\nref = "a"\nroot = "{repository}"\n'
    own.write_text(workspace + 'secrets = [{ name = "T" }]\n')
    file = repository / "remit.toml"
    file.write_text(f'[[nodes.local.workspaces]]\nref = "a"\n{line}\n')
    if line.startswith("freeze"):
        assert load(repository).workspaces["a"].secrets
        return
    with pytest.raises(ConfigError, match="would be given the secrets of the workspace a"):
        load(repository)
    make_data_folder(home / ".local/share/remit")
    TrustStore(home / ".local/share/remit").trust(read_config_file(file))
    assert load(repository).workspaces["a"].secrets


@pytest.mark.parametrize(("text", "named"), STRANGE)
def test_a_stranger_may_not_set_this(repository: Path, text: str, named: str) -> None:
    """R37: a file that the agent can write widens nothing; the message says how to allow it."""
    (repository / "remit.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(repository)
    assert f"`{named}`" in caught.value.message
    assert "remit trust" in caught.value.message


def test_a_stranger_may_describe_and_narrow(repository: Path) -> None:
    """Prompts, narrower limits, commands, checks, setup and pool names are a repository's own business."""
    (repository / "remit.toml").write_text(
        '[bindings.reviewed]\ninstructions = "Be brief."\n'
        "[bindings.reviewed.limits]\nwall_clock_ms = 1000\nmax_cost_usd = 100\n"
        '[[nodes.local.workspaces]]\nref = "app"\nroot = "."\nchecks = ["t"]\n'
        'commands = [{ id = "t", executable = "true" }]\n'
    )
    config = load(repository)
    assert config.bindings["reviewed"].instructions == "Be brief."
    assert config.workspaces["app"].checks == ("t",)
    assert config.bindings["reviewed"].limits.max_cost_usd == Decimal(5), "it can't raise the cap"


def test_a_root_outside_is_refused(repository: Path) -> None:
    """A stranger's workspace lies inside the repository."""
    (repository / "remit.toml").write_text('[[nodes.local.workspaces]]\nref = "a"\nroot = ".."\n')
    with pytest.raises(ConfigError, match="outside the repository"):
        load(repository)


def test_trust_is_for_these_bytes(repository: Path) -> None:
    """`remit trust` remembers a hash: a changed file is strange again."""
    file = repository / "remit.toml"
    file.write_text("[host]\nmax_running = 3\n")
    data = make_data_folder(repository.parent / "home/.local/share/remit")
    TrustStore(data).trust(read_config_file(file))
    assert load(repository).host.max_running == 3
    file.write_text("[host]\nmax_running = 4\n")
    with pytest.raises(ConfigError):
        load(repository)


def test_a_link_to_the_repository_is_still_inside(repository: Path, tmp_path: Path) -> None:
    """R34: inside and outside are decided on the folders themselves, not on how a path is spelled."""
    (repository / "remit.toml").write_text("[host]\nmax_running = 3\n")
    link = tmp_path / "elsewhere"
    link.symlink_to(repository)
    with pytest.raises(ConfigError):
        load_config(
            environment={"HOME": str(tmp_path / "home")},
            folder=link,
            repository=repository,
            named=link / "remit.toml",
        )


def test_the_users_own_file_may_set_all(repository: Path) -> None:
    """A file outside the repository isn't a stranger's."""
    own = repository.parent / "home/.config/remit/remit.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[host]\nmax_running = 3\n[bindings.reviewed]\nprofile = "direct"\n')
    config = load(repository)
    assert config.host.max_running == 3
    assert config.bindings["reviewed"].profile == "direct"
