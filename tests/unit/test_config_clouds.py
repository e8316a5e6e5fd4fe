"""What is told of a model that can't be asked, before anything has begun: table, key, login, dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.config import load_config
from remit.config._google import why_no_google_login
from remit.errors import ConfigError, InvalidRequest
from remit.models import PROVIDER_KINDS, why_not_served

VERTEX = {"kind": "vertex", "project": "mine", "location": "europe-west4"}
LOGIN = "gcloud auth application-default login"
PLAIN_KINDS = {"openai", "anthropic", "google", "openrouter", "ollama"}


def check(home: Path, model: str, providers: Mapping[str, Any] | None = None, **variables: str) -> None:
    environment = {"HOME": str(home), "PATH": "/usr/bin", **variables}
    config = load_config(environment=environment, folder=home, overrides={"providers": dict(providers or {})})
    config.check_model(model)


def refused(home: Path, model: str, providers: Mapping[str, Any] | None = None, **variables: str) -> str:
    with pytest.raises((ConfigError, InvalidRequest)) as caught:
        check(home, model, providers, **variables)
    assert caught.value.exit_code == 2
    return caught.value.message


@pytest.mark.parametrize("kind", sorted(set(PROVIDER_KINDS) - PLAIN_KINDS))
def test_a_kind_that_needs_a_table_is_told_which(tmp_path: Path, kind: str) -> None:
    """The kind itself as a name, with no table: the least that has to be written, which then is enough."""
    said = refused(tmp_path, f"{kind}:m")
    assert f"[providers.{kind}]" in said
    assert f'kind = "{kind}"' in said
    values = {"base_url": "https://r.example", "project": "p", "location": "us-east-1", "script": "FILE"}
    table = {"kind": kind, **{word: value for word, value in values.items() if f"{word} =" in said}}
    if "api_key_env" in said or kind == "bedrock":
        table["api_key_env"] = "SOME_KEY"
    check(tmp_path, f"{kind}:m", {kind: table}, SOME_KEY="k")


@pytest.mark.parametrize(("model", "words"), [("nobody:m", "openrouter"), ("gpt-5.2", "isn't a model")])
def test_a_name_that_is_none(tmp_path: Path, model: str, words: str) -> None:
    """S2: the name, and what there is."""
    said = refused(tmp_path, model)
    assert model in said
    assert words in said


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "azure", "base_url": "https://r.example", "api_key_env": "NONE"}, "set NONE"),
        ({"kind": "openai-compatible", "base_url": "https://r.example", "api_key_env": "NONE"}, "set NONE"),
        ({"kind": "bedrock", "location": "us-east-1"}, "AWS_ACCESS_KEY_ID"),
        (VERTEX, LOGIN),
    ],
)
def test_a_key_or_login_that_is_not_there(tmp_path: Path, table: dict[str, Any], words: str) -> None:
    """R56: what can't work isn't begun."""
    assert words in refused(tmp_path, "cloud:m", {"cloud": table})


def gcloud(home: Path) -> dict[str, str]:
    folder = home / ".config" / "gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").write_text("{}")
    return {}


def elsewhere(home: Path) -> dict[str, str]:
    (home / "sdk").mkdir()
    (home / "sdk" / "application_default_credentials.json").write_text("{}")
    return {"CLOUDSDK_CONFIG": str(home / "sdk")}


def service_account(home: Path) -> dict[str, str]:
    (home / "account.json").write_text("{}")
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(home / "account.json")}


def machine(home: Path) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize("login", [gcloud, elsewhere, service_account, machine])
def test_every_login_that_the_library_finds_is_found(
    tmp_path: Path, login: Callable[[Path], dict[str, str]]
) -> None:
    """A file that a variable names, gcloud's own wherever that keeps it, or what the machine is given."""
    check(tmp_path, "cloud:gemini-2.5-pro", {"cloud": VERTEX}, **login(tmp_path))


def test_a_login_that_is_named_and_not_there(tmp_path: Path) -> None:
    """The variable wins over gcloud's file, as with the library, so its fault is told."""
    gcloud(tmp_path)
    lost = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "lost.json")}
    assert "lost.json" in refused(tmp_path, "cloud:gemini-2.5-pro", {"cloud": VERTEX}, **lost)


def test_a_machine_of_googles(tmp_path: Path) -> None:
    """It gives what runs there a login; whether it does shows when it is asked."""
    product = tmp_path / "product_name"
    product.write_text("Google Compute Engine\n")
    assert why_no_google_login({"HOME": str(tmp_path)}, product=product) is None
    product.write_text("Standard PC\n")
    assert LOGIN in (why_no_google_login({"HOME": str(tmp_path)}, product=product) or "")


@pytest.mark.parametrize(
    "model",
    ["claude-sonnet-4-5", "anthropic/claude-opus-4", "publishers/meta/models/llama-4", "mistral-large"],
)
def test_another_vendors_model_at_vertex(tmp_path: Path, model: str) -> None:
    """R56: kind vertex speaks Gemini alone, which is said before a run, a login or a price is asked for."""
    said = refused(tmp_path, f"cloud:{model}", {"cloud": VERTEX})
    assert "speaks Gemini alone" in said
    assert model in said


@pytest.mark.parametrize(
    "model",
    [
        "gemini-2.5-pro",
        "google/gemini-2.5-pro",
        "publishers/google/models/gemini-3",
        "projects/p/endpoints/7",
    ],
)
def test_googles_models_at_vertex(model: str) -> None:
    """By their plain names, by a path, and as an endpoint of one's own."""
    assert why_not_served("vertex", model) is None
    assert why_not_served("bedrock", "claude-sonnet-4-5") is None
