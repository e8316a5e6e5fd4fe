"""A small local model completes a trivial reviewed task in `tool_mode = "json"`: `make smoke`.

Not collected with the tests: it needs weights that nobody ships. `SMOKE_GGUF` names a GGUF file, for
which a llama.cpp server is started (`pip install 'llama-cpp-python[server]'`); or `SMOKE_URL` names a
server that runs, with `SMOKE_MODEL` for what it is asked.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from git_repository import git, write
from remit.config import load_config
from remit.contract import RunRequest
from remit.host import Host

_START_S = 600

_URL, _WEIGHTS = os.environ.get("SMOKE_URL"), os.environ.get("SMOKE_GGUF")
_MODEL = os.environ.get("SMOKE_MODEL", "local")


@pytest.fixture(scope="module")
def server() -> Generator[tuple[str, str]]:
    """Address and model of a server that speaks Chat Completions."""
    if _URL:
        yield _URL, _MODEL
        return
    if not _WEIGHTS or not Path(_WEIGHTS).expanduser().is_file():
        pytest.fail("set SMOKE_GGUF to a GGUF file, or SMOKE_URL to a server that runs")
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--model", str(Path(_WEIGHTS).expanduser()), "--port", str(port), "--n_ctx", "16384"]
    with subprocess.Popen([sys.executable, "-m", "llama_cpp.server", *arguments]) as process:
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait_for(url, process)
            yield url, "local"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"the server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail("the server didn't start in time")


@pytest.mark.timeout(3_600)
async def test_a_trivial_task(server: tuple[str, str], tmp_path: Path) -> None:
    """The run ends as completed, and what was asked for is in the patch."""
    url, model = server
    root = tmp_path / "app"
    root.mkdir()
    write(root, {"greeting.txt": "Hello, wurld!\n"})
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Begin")
    settings = {
        "providers": {
            "box": {"kind": "openai-compatible", "base_url": url, "first_byte_timeout_ms": 3_000_000}
        },
        "prices": {f"box:{model}": {"free": True}},
        "pools": {
            "default": {
                "members": [{"model": f"box:{model}", "tool_mode": "json", "context_window_tokens": 16_384}]
            }
        },
    }
    environment = {**os.environ, "REMIT_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    config = load_config(environment=environment, folder=root, overrides=settings).as_owner()
    config, workspace = config.with_folder(root)
    async with Host(config) as host:
        run = await host.start(
            RunRequest.model_validate(
                {
                    "prompt": "In greeting.txt, correct the spelling of `wurld` to `world`.",
                    "workspace": {"ref": workspace.ref},
                    "delivery": "apply",
                }
            )
        )
        view = await run.wait()
    assert view.terminal is not None
    assert view.terminal.kind == "completed", view.terminal
    assert (root / "greeting.txt").read_text() == "Hello, world!\n"
