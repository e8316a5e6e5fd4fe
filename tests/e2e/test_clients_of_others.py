"""What nobody here wrote, in environments of its own: Vercel's AI SDK, LiteLLM, Schemathesis."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from served_kit import ANSWER, TITLE, Served, serve

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "clients"
IS_CI = os.environ.get("CI") == "true"
WHY_NOT = "is installed on CI only, since it comes over the network; set CI=true to install it here"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("others"), door={"keep_alive_s": 0.2}) as served:
        yield served


def do(words: Sequence[str | Path], *, where: Path, timeout_s: float = 300, **variables: str) -> str:
    """Run a command to its end; its output."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=where,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


# ---- Vercel's AI SDK


@pytest.fixture(scope="module")
def vercel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the SDK and its providers, as the lock has them."""
    folder = tmp_path_factory.mktemp("vercel")
    if not IS_CI:
        pytest.skip(f"the AI SDK {WHY_NOT}")
    if shutil.which("npm") is None:
        do(["apt-get", "update", "-qq"], where=folder)
        do(["apt-get", "install", "-y", "-qq", "nodejs", "npm"], where=folder, timeout_s=600)
    for name in ("ask.mjs", "package.json", "package-lock.json"):
        shutil.copy(CLIENTS / name, folder)
    do(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], where=folder)
    return folder


@pytest.mark.timeout(900)
def test_vercel_ai_sdk(served: Served, vercel: Path) -> None:
    """R74, R75: its schemas are strict; every answer, stream and error passes them, whichever door."""
    found = json.loads(
        do(
            ["node", "ask.mjs", served.base_url, served.secret],
            where=vercel,
            AI_SDK_LOG_WARNINGS="false",
        ).splitlines()[-1]
    )
    assert set(found) == {"chat", "responses", "anthropic", "compatible"}
    for name, door in found.items():
        assert (door["whole"]["text"], door["whole"]["finishReason"]) == (ANSWER, "stop"), name
        assert door["whole"]["inputTokens"] > 0, name
        assert door["streamed"]["text"] == ANSWER, name
        assert door["live"]["text"] == TITLE, name
        assert door["streamed"]["errors"] == door["live"]["errors"] == [], name
        assert door["failing"]["status"] == 502, name
        assert "credentials" in door["failing"]["message"], name
    for name in ("responses", "compatible"):
        assert "Reviewing." in found[name]["streamed"]["reasoning"], name


# ---- LiteLLM, Schemathesis


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Python's programs, with what the lock has."""
    folder = tmp_path_factory.mktemp("clients")
    if not IS_CI:
        pytest.skip(f"LiteLLM and Schemathesis: each {WHY_NOT}")
    uv, programs = ROOT / ".venv" / "bin" / "uv", folder / "venv" / "bin"
    do([uv, "venv", "--quiet", folder / "venv"], where=folder)
    lock = ROOT / "requirements" / "clients.txt"
    do(
        [uv, "pip", "install", "--quiet", "--python", programs / "python", "--require-hashes", "-r", lock],
        where=folder,
        timeout_s=600,
    )
    return programs


@pytest.mark.timeout(900)
def test_litellm(served: Served, environment: Path, tmp_path: Path) -> None:
    """Whole and streamed, as OpenAI's and as Anthropic's client; a failed run is an error."""
    found: dict[str, Any] = json.loads(
        do(
            [environment / "python", CLIENTS / "ask_litellm.py", served.base_url, served.secret],
            where=tmp_path,
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            NO_PROXY="127.0.0.1",
        ).splitlines()[-1]
    )
    for name in ("openai/reviewed", "anthropic/reviewed"):
        assert (found[name]["whole"], found[name]["streamed"]) == (ANSWER, ANSWER), name
        assert found[name]["total_tokens"] > 0, name
    assert found["responses"] == TITLE
    assert "credentials" in found["failed"]["message"]


@pytest.mark.timeout(900)
def test_schemathesis_finds_no_fault_of_ours(served: Served, environment: Path, tmp_path: Path) -> None:
    """R73: over the generated description of the native API, odd and broken calls never answer 500."""
    told = do(
        [
            *(environment / "schemathesis", "run", f"{served.base_url}/openapi.json"),
            *("--header", f"Authorization: Bearer {served.secret}", "--checks", "not_a_server_error"),
            *("--phases", "coverage,fuzzing", "--max-examples", "5", "--seed", "1", "--no-color"),
        ],
        where=tmp_path,
        NO_PROXY="127.0.0.1",
    )
    assert "No issues found" in told or " passed" in told
