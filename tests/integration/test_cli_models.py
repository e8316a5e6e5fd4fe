"""`remit models` against real servers on loopback: what is told, and what isn't known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.cli import main
from remit.config import _load as loading
from remit.config._local import LocalServer
from remit.testing import (
    AnthropicDialect,
    FakeProvider,
    GeminiDialect,
    OllamaDialect,
    OllamaModel,
    OpenAIChatDialect,
    OpenRouterDialect,
)

Ask = Callable[..., tuple[int, list[dict[str, Any]]]]
KEY = "FAKE_MODELS_KEY"


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run `remit models --json` with a file of this text."""
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path / "app")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REMIT_HOME", str(tmp_path / "data"))
    for name in (
        "XDG_CONFIG_HOME",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)

    def run(text: str | None, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        named: tuple[str, ...] = ()
        if text is not None:
            path = tmp_path / "remit.toml"
            path.write_text(text)
            named = ("--config", str(path))
        code = main(["models", *arguments, "--json", *named])
        lines = capsys.readouterr().out.splitlines()
        return code, [json.loads(line) for line in lines]

    return run


def provider(name: str, kind: str, fake: FakeProvider, *, key: bool = True) -> str:
    lines = [f"[providers.{name}]", f'kind = "{kind}"', f'base_url = "{fake.base_url}"']
    return "\n".join([*lines, *([f'api_key_env = "{KEY}"'] if key else []), ""])


def pool(*models: str) -> str:
    return "[pools.default]\nmembers = [" + ", ".join(f'{{ model = "{model}" }}' for model in models) + "]\n"


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "openai-chat": (
        OpenAIChatDialect,
        "gpt-4.1",
        {"window_tokens": 1_000_000, "window_from": "known", "tools": "native", "efforts": []},
    ),
    "anthropic": (
        AnthropicDialect,
        "claude-opus-4-7",
        {"window_from": "known", "efforts": ["none", "low", "medium", "high", "xhigh", "max"]},
    ),
    "google": (
        GeminiDialect,
        "gemini-3.8-flash",
        {"window_tokens": 1_048_576, "window_from": "provider", "max_output_tokens": 65_536},
    ),
    "openrouter": (
        OpenRouterDialect,
        "anthropic/claude-sonnet-4.6",
        {
            "window_tokens": 1_000_000,
            "window_from": "provider",
            "max_output_tokens": 64_000,
            "tools": "native",
        },
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_each_kind_is_asked_for_its_list(ask: Ask, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Reachable, listed, window, tools, effort: from the provider, else from what is known."""
    dialect, model, expected = CASES[kind]
    with FakeProvider(dialect=dialect()) as fake:
        monkeypatch.setenv(KEY, fake.api_key)
        code, (row,) = ask(provider("p", kind, fake) + pool(f"p:{model}"))
        assert fake.requests == []
        assert len(fake.looks) == 1
    assert code == 0
    assert (row["model"], row["reachable"], row["listed"], row["pools"]) == (
        f"p:{model}",
        True,
        True,
        ["default"],
    )
    assert {name: row[name] for name in expected} == expected
    assert row["price"] is None, "whoever stands at that address has prices of its own"


def test_ollama_is_asked_for_its_model(ask: Ask) -> None:
    """Window and tools as the server tells them; free; what a model has no tools for is asked in JSON."""
    models = {"a:1b": OllamaModel(window_tokens=8_192), "b:1b": OllamaModel(capabilities=("completion",))}
    with FakeProvider(dialect=OllamaDialect(models=models)) as fake:
        code, rows = ask(
            provider("box", "ollama", fake, key=False) + pool("box:a:1b", "box:b:1b", "box:c:1b")
        )
    assert code == 0
    assert [row["window_tokens"] for row in rows] == [8_192, 32_768, None]
    assert [row["tools"] for row in rows] == ["native", "json", None]
    assert [row["listed"] for row in rows] == [True, True, False]
    assert all(row["price"]["free"] for row in rows)


def test_what_nobody_knows_is_null(ask: Ask) -> None:
    """A compatible server that says nothing: no window, no price, no tools are made up."""
    with FakeProvider(dialect=OpenAIChatDialect(models=None, api_key=None)) as fake:
        code, (row,) = ask(provider("box", "openai-compatible", fake, key=False) + pool("box:mystery"))
    assert code == 0
    assert (row["reachable"], row["listed"]) == (True, None)
    unknown = ("window_tokens", "window_from", "price", "tools", "efforts", "max_output_tokens")
    assert [row[name] for name in unknown] == [None] * 6


def test_who_cannot_be_reached(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key, a missing key, a dead address, a missing script: each is said; exit 1."""
    with FakeProvider(dialect=OpenAIChatDialect()) as fake:
        monkeypatch.setenv(KEY, "sk-wrong-0123456789")
        text = provider("wrong", "openai-chat", fake)
        text += '[providers.none]\nkind = "openai-chat"\napi_key_env = "NOT_SET_ANYWHERE"\n'
        text += '[providers.dead]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9"\n'
        text += '[providers.play]\nkind = "scripted"\nscript = "missing.yaml"\n'
        code, rows = ask(text + pool("wrong:m", "none:m", "dead:m", "play:m"))
    assert code == 1
    assert [row["reachable"] for row in rows] == [False] * 4
    assert "the key isn't taken (HTTP 401)" in rows[0]["why"]
    assert "NOT_SET_ANYWHERE" in rows[1]["why"]
    assert "no answer" in rows[2]["why"]
    assert "missing.yaml" in rows[3]["why"]
    assert "sk-wrong" not in json.dumps(rows)


@pytest.mark.parametrize("kind", ["anthropic", "google"])
def test_an_extra_that_is_not_installed(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """A model that a run would be refused for is never shown as ready: by `models`, nor by `doctor`."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    monkeypatch.setenv(KEY, "key-0123456789")
    text = f'[providers.p]\nkind = "{kind}"\napi_key_env = "{KEY}"\n'
    code, (row,) = ask(text + pool("p:gemini-3.8-flash"))
    assert (code, row["reachable"]) == (1, False)
    assert f"pip install 'remit[{kind}]'" in row["why"]
    code, (row,) = ask(text)
    assert (code, row["reachable"], f"remit[{kind}]" in row["why"]) == (0, False, True)
    own = Path.cwd().parent / ".config" / "remit" / "remit.toml"
    own.parent.mkdir(parents=True)
    own.write_text(text + pool("p:gemini-3.8-flash"))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert said.count(f"pip install 'remit[{kind}]'") == 2, "of the provider, and of the model"
    assert "A run would work here." not in said
    assert "OPENAI_API_KEY" not in said, "that is no way out"


def test_a_provider_that_no_pool_names(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown too, and its failure is no failure of a pool."""
    with FakeProvider(dialect=OpenAIChatDialect()) as fake:
        monkeypatch.setenv(KEY, fake.api_key)
        code, rows = ask(
            provider("spare", "openai-chat", fake) + provider("p", "openai-chat", fake) + pool("p:gpt-4.1")
        )
    assert code == 0
    assert [(row["model"], row["pools"]) for row in rows] == [("p:gpt-4.1", ["default"]), ("spare", [])]


def test_without_settings(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """R23: with nothing configured it shows what a run would take: a server on this machine, free."""
    with FakeProvider(dialect=OllamaDialect()) as fake:
        server = LocalServer(f"{fake.base_url}/v1", "tiny:1b", "ollama")
        monkeypatch.setattr(loading, "find_local_server", lambda: server)
        code, (row,) = ask(None)
    assert (code, row["model"], row["reachable"]) == (0, "local:tiny:1b", True)
    assert row["price"]["free"]


def test_for_people(ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row under its names; `?` where nobody knows; prices as one reads them."""
    with FakeProvider(dialect=OpenAIChatDialect()) as fake:
        monkeypatch.setenv(KEY, fake.api_key)
        prices = '[prices."p:odd"]\ninput_usd_per_mtok = "10"\noutput_usd_per_mtok = "12.5"\n'
        ask(provider("p", "openai-chat", fake) + pool("p:odd") + prices)
        assert main(["models", "--config", str(Path.cwd().parent / "remit.toml")]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["model", "pools", "window", "in/out", "per", "Mtok", "tools", "effort"]
    assert "$10 / $12.5" in row
    assert "128,000 assumed" in row
    assert "the provider doesn't list it" in row
