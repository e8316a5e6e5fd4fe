"""Providers: from a table with the names of keys to settings with the keys themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remit.config._aws import AWS_KEY_VARIABLE, find_aws_credentials, find_aws_region, no_credentials
from remit.config._google import why_no_google_login
from remit.config._schema import HostTable, ProviderTable
from remit.contract import say_fault
from remit.errors import ConfigError
from remit.models import ProviderSettings
from remit.primitives import Secret

IMPLICIT_PROVIDERS: dict[str, ProviderTable] = {
    "openai": ProviderTable(kind="openai", api_key_env="OPENAI_API_KEY"),
    "anthropic": ProviderTable(kind="anthropic", api_key_env="ANTHROPIC_API_KEY"),
    "google": ProviderTable(kind="google", api_key_env="GEMINI_API_KEY"),
    "openrouter": ProviderTable(kind="openrouter", api_key_env="OPENROUTER_API_KEY"),
    "ollama": ProviderTable(kind="ollama"),
}
"""Providers that need no table: their key's variable is all there is to say."""

_OTHER_VARIABLES = {"GEMINI_API_KEY": "GOOGLE_API_KEY"}
"""Where a key also stands, by the variable that wins."""

DEFAULT_MODELS: dict[str, str] = {
    "openai": "openai:gpt-5.2",
    "anthropic": "anthropic:claude-sonnet-5-5",
    "google": "google:gemini-3.8-flash",
    "openrouter": "openrouter:openai/gpt-5.2",
}
"""What an implicit provider is asked for when nothing names a model; the first with a key is taken."""


def find_implicit(name: str, environment: Mapping[str, str]) -> ProviderTable | None:
    """A provider that nobody configured, with the variable in which its key stands."""
    table = IMPLICIT_PROVIDERS.get(name)
    if table is None or table.api_key_env is None or environment.get(table.api_key_env, "").strip():
        return table
    other = _OTHER_VARIABLES.get(table.api_key_env)
    found = other is not None and environment.get(other, "").strip()
    return table.model_copy(update={"api_key_env": other}) if found else table


def key_variables(tables: Iterable[ProviderTable], table: HostTable) -> frozenset[str]:
    """Variables that hold keys of providers, configured or implied, or the secret of webhooks."""
    names = {*_OTHER_VARIABLES.values(), table.webhook_secret_env}
    for provider in (*tables, *IMPLICIT_PROVIDERS.values()):
        names |= {provider.api_key_env, *provider.header_env.values()}
    return frozenset(name for name in names if name is not None)


_PLAIN = (
    "base_url",
    "organization",
    "project",
    "api_version",
    "location",
    "proxy",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "call_timeout_ms",
)


def resolve_provider(name: str, table: ProviderTable, environment: Mapping[str, str]) -> ProviderSettings:
    """A provider, with its key.

    Raises:
        ConfigError: Its key isn't there, or its settings don't go together.
    """
    values: dict[str, Any] = {"name": name, "kind": table.kind, "extra_body": table.extra_body}
    values |= {key: value for key in _PLAIN if (value := getattr(table, key)) is not None}
    if table.script is not None:
        values["script"] = Path(table.script)
    if table.ca_file is not None:
        values["ca_file"] = Path(table.ca_file)
    values["headers"] = {
        header: _from_environment(name, variable, environment)
        for header, variable in table.header_env.items()
    }
    values["api_key"] = _key(name, table, environment)
    if table.kind == "bedrock":
        values |= _for_aws(name, table, values, environment)
    try:
        settings = ProviderSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"providers.{name}{'.' + where if where else ''}: {say_fault(first, mapping='a table')}",
            param=f"providers.{name}",
        ) from None
    if settings.kind == "vertex" and settings.api_key is None:
        why = why_no_google_login(environment)
        if why is not None:
            raise ConfigError(f"provider `{name}` has no login for Google: {why}", param=f"providers.{name}")
    return settings


def _for_aws(
    name: str, table: ProviderTable, values: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What isn't named in the file, from where AWS's own tools look for it."""
    found: dict[str, Any] = {}
    if values.get("location") is None and (region := find_aws_region(environment)):
        found["location"] = region
    if values["api_key"] is not None:
        return found
    key = environment.get(AWS_KEY_VARIABLE, "").strip()
    if key:
        return found | {"api_key": Secret(key)}
    credentials = find_aws_credentials(environment)
    if credentials is None:
        raise ConfigError(
            f"provider `{name}` has no credentials: {no_credentials(environment)}", param=f"providers.{name}"
        )
    return found | {"aws": credentials}


def _key(name: str, table: ProviderTable, environment: Mapping[str, str]) -> Secret | None:
    if table.api_key_env is not None and table.api_key_file is not None:
        raise ConfigError(f"providers.{name}: give api_key_env or api_key_file, not both")
    if table.api_key_env is not None:
        return _from_environment(name, table.api_key_env, environment)
    if table.api_key_file is None:
        return None
    return _from_file(table.api_key_file, f"providers.{name}: the key file")


def find_webhook_secret(table: HostTable, environment: Mapping[str, str]) -> Secret | None:
    """What webhooks are signed with; None: none is named.

    Raises:
        ConfigError: The one that is named isn't there, or two are named.
    """
    variable, file = table.webhook_secret_env, table.webhook_secret_file
    if variable is not None and file is not None:
        raise ConfigError("host: give webhook_secret_env or webhook_secret_file, not both")
    if file is not None:
        return _from_file(file, "host: the webhook secret file")
    if variable is None:
        return None
    value = environment.get(variable, "").strip()
    if not value:
        raise ConfigError(f"host.webhook_secret_env: {variable} isn't set", param="host.webhook_secret_env")
    return Secret(value)


def _from_file(path: str, what: str) -> Secret:
    try:
        value = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{what} {path} can't be read: {why}") from None
    if not value:
        raise ConfigError(f"{what} {path} is empty")
    return Secret(value)


def _from_environment(name: str, variable: str, environment: Mapping[str, str]) -> Secret:
    value = environment.get(variable, "").strip()
    if not value:
        raise ConfigError(
            f"provider `{name}` has no key: set {variable}, or name another model with --model",
            param=f"providers.{name}",
            variable=variable,
        )
    return Secret(value)
