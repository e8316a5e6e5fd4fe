"""`[mcp.servers]`: what may stand there, and who may say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.config import Config, load_config
from remit.config import _load as loading
from remit.errors import ConfigError

WORKSPACE = '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nmcp = ["notes"]\n'


def load(folder: Path, text: str, *, repository: Path | None = None) -> Config:
    (folder / "remit.toml").write_text(text)
    return load_config(environment={"HOME": str(folder)}, folder=folder, repository=repository)


def test_servers_are_read(tmp_path: Path) -> None:
    """A server stands under its name, and a workspace names those that its runs may use."""
    server = '[mcp.servers.notes]\ncommand = "notes"\nargs = ["--stdio"]\nenvironment_allowlist = ["TOKEN"]\n'
    config = load(tmp_path, server + WORKSPACE)
    notes = config.servers["notes"]
    assert (notes.command, notes.args, notes.environment_allowlist) == ("notes", ("--stdio",), ("TOKEN",))
    assert (notes.sandbox, notes.network, notes.start_timeout_ms) == (True, False, 30_000)
    assert config.workspaces["a"].mcp == ("notes",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKSPACE, "there is no MCP server `notes`"),
        ('[mcp.servers.a__b]\ncommand = "x"\n', "a server's name"),
        ('[mcp.servers."a b"]\ncommand = "x"\n', "a server's name"),
        ("[mcp.servers.a]\n", "mcp.servers.a.command"),
        ('[mcp.servers.a]\ncommand = " "\n', "names no program"),
        ('[mcp.servers.a]\ncommand = "x"\nport = 1\n', "there is no such setting"),
        ('[mcp.servers.a]\ncommand = "x"\nenvironment = { "A B" = "1" }\n', "isn't the name of a variable"),
        ('[mcp.servers.a]\ncommand = "./x"\nsandbox = false\n', "an absolute path"),
        ('[mcp.servers.a]\ncommand = "x"\nstart_timeout_ms = 0\n', "start_timeout_ms"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """R55: a setting that can't work is refused with its name."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '[mcp.servers.notes]\ncommand = "notes"\n',
        '[mcp.servers.notes]\ncommand = "notes"\nsandbox = false\n',
        WORKSPACE,
    ],
)
def test_a_strangers_file_starts_nothing(tmp_path: Path, text: str) -> None:
    """A file inside the repository that is worked on sets no server and names none, unless it is trusted."""
    with pytest.raises(ConfigError, match="remit trust"):
        load(tmp_path, text, repository=tmp_path)


def test_a_missing_library_is_said_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra a workspace that names a server is refused, with the command that installs it."""
    monkeypatch.setattr(loading, "find_sdk", lambda: False)
    with pytest.raises(ConfigError, match=r"remit\[mcp\]"):
        load(tmp_path, '[mcp.servers.notes]\ncommand = "notes"\n' + WORKSPACE)
