"""Agents and libraries that nobody here wrote: each gets the reviewed output, and stops what it started.

They are large, and download themselves, so they run only when asked for:

    make test ARGS='-m nightly tests/e2e/test_agents_of_others.py'
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from served_kit import ANSWER, BINDINGS, NONCE, Served, serve
from whole_kit import processes_with

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "clients"
AGENTIC: dict[str, Any] = {
    "agentic": {"workspace": "app", "profile": "reviewed", "client_tools": "ignore"},
}


@dataclass(frozen=True, slots=True)
class Installed:
    """Where the agents are."""

    python: Path
    programs: Path
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("agents"), bindings=BINDINGS | AGENTIC) as served:
        yield served


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """All of them, as the locks have them."""
    if shutil.which("npm") is None:
        pytest.skip("npm isn't here: apt-get install nodejs npm")
    folder = tmp_path_factory.mktemp("installed")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENTS / "programs" / name, folder)
    uv, python = ROOT / ".venv" / "bin" / "uv", folder / "venv" / "bin" / "python"
    lock = ROOT / "requirements" / "agents.txt"
    for words in (
        ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
        # Its program is put in place by a script of its own.
        ["node", "node_modules/@anthropic-ai/claude-code/install.cjs"],
        [uv, "venv", "--quiet", folder / "venv"],
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock],
    ):
        subprocess.run([str(word) for word in words], cwd=folder, check=True, timeout=600)
    (folder / "work").mkdir()
    return Installed(python, folder / "node_modules" / ".bin", folder)


def library(name: str) -> Callable[[Installed, Served, str], subprocess.Popen[str]]:
    """Start one of the libraries."""

    def start(installed: Installed, served: Served, prompt: str) -> subprocess.Popen[str]:
        script = str(CLIENTS / "ask_agents.py")
        words = [str(installed.python), "-W", "ignore", script, name, served.base_url, served.secret, prompt]
        return popen(words, installed.folder)

    return start


def codex(installed: Installed, served: Served, prompt: str) -> subprocess.Popen[str]:
    """Start Codex CLI."""
    home = installed.folder / "codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        'model = "agentic"\nmodel_provider = "remit"\n[model_providers.remit]\nname = "remit"\n'
        f'base_url = "{served.base_url}/v1"\nenv_key = "REMIT_KEY"\nwire_api = "responses"\n'
    )
    words = [str(installed.programs / "codex"), "exec", "--skip-git-repo-check", prompt]
    return popen(words, installed.folder / "work", CODEX_HOME=str(home), REMIT_KEY=served.secret)


def claude_code(installed: Installed, served: Served, prompt: str) -> subprocess.Popen[str]:
    """Start Claude Code."""
    return popen(
        [str(installed.programs / "claude"), "-p", prompt],
        installed.folder / "work",
        HOME=str(installed.folder),
        ANTHROPIC_BASE_URL=served.base_url,
        ANTHROPIC_AUTH_TOKEN=served.secret,
        ANTHROPIC_MODEL="agentic",
        ANTHROPIC_SMALL_FAST_MODEL="agent",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


def popen(words: list[str], where: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=where,
        env={**os.environ, "NO_PROXY": "127.0.0.1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


AGENTS: dict[str, Callable[[Installed, Served, str], subprocess.Popen[str]]] = {
    "pydantic-ai": library("pydantic_ai"),
    "pydantic-ai with Anthropic": library("pydantic_ai_anthropic"),
    "langchain-openai": library("langchain"),
    "openai-agents": library("openai_agents"),
    "Codex CLI": codex,
    "Claude Code": claude_code,
}


@pytest.mark.parametrize("name", AGENTS)
def test_it_answers_with_the_reviewed_output(served: Served, installed: Installed, name: str) -> None:
    """The same run through every door."""
    process = AGENTS[name](installed, served, "Mend it.")
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert output.strip().splitlines()[-1] == ANSWER
    assert process.returncode == 0


@pytest.mark.parametrize("name", AGENTS)
def test_its_interrupt_ends_the_runs_processes(served: Served, installed: Installed, name: str) -> None:
    """R4: Ctrl-C on the client's side is a cancel on the host's."""
    process = AGENTS[name](installed, served, "SLEEP on it.")
    try:
        wait_until(lambda: bool(processes_with(NONCE)), within_s=120)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not processes_with(NONCE), within_s=30)
        process.communicate(timeout=60)
    finally:
        process.kill()


def wait_until(holds: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
