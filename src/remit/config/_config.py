"""The settings in force, each module's in its own type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from remit.admission import ALL_OVERRIDES, Binding, StageBinding
from remit.config._folders import make_data_folder, refuse_data_inside
from remit.config._providers import (
    IMPLICIT_PROVIDERS,
    find_implicit,
    find_webhook_secret,
    key_variables,
    resolve_provider,
)
from remit.config._schema import HostTable, ProviderTable
from remit.contract import LimitRequest
from remit.errors import ConfigError, InvalidRequest
from remit.models import (
    PoolMember,
    PoolSettings,
    ProviderSettings,
    describe_table,
    need_extra,
    why_not_served,
)
from remit.primitives import Secret
from remit.usage import PriceSetting
from remit.workspaces import KeepLimits, McpServer, WorkspaceSettings

DEFAULT_BINDING = "reviewed"
DEFAULT_MAX_COST_USD = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that is configured. Immutable; `with_` methods give changed copies."""

    data: Path
    """The data folder."""
    environment: Mapping[str, str] = field(repr=False)
    """Where keys are read from when a provider is used."""
    files: tuple[Path, ...] = ()
    """The files that count, weakest first."""
    notes: tuple[str, ...] = ()
    """What the user should know of how the settings came about."""
    host: HostTable = field(default_factory=HostTable)
    providers: Mapping[str, ProviderTable] = field(default_factory=dict[str, ProviderTable])
    pools: Mapping[str, PoolSettings] = field(default_factory=dict[str, PoolSettings])
    bindings: Mapping[str, Binding] = field(default_factory=dict[str, Binding])
    workspaces: Mapping[str, WorkspaceSettings] = field(default_factory=dict[str, WorkspaceSettings])
    """Those of the local node, by ref."""
    servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])
    """The MCP servers that those may name."""
    prices: Mapping[str, PriceSetting] = field(default_factory=dict[str, PriceSetting])
    keep: KeepLimits = field(default_factory=KeepLimits)
    """How much the local node keeps of ended runs."""
    default_binding: str | None = None
    allow_unconfined: bool = False
    """Whether sandbox level `none` was allowed by hand, for this process."""

    def node_environment(self) -> dict[str, str]:
        """What the local node sees of the environment: all but providers' keys that no workspace names."""
        named: set[str] = set()
        for server in self.servers.values():
            named |= {*server.environment_allowlist}
        for workspace in self.workspaces.values():
            named |= {*workspace.environment_allowlist}
            named |= {secret.env or secret.name for secret in workspace.secrets}
        hidden = key_variables(self.providers.values(), self.host) - named
        return {name: value for name, value in self.environment.items() if name not in hidden}

    # ---- providers and pools

    def find_provider(self, name: str) -> ProviderTable | None:
        """A provider's table: configured, or implied by its name."""
        return self.providers.get(name) or find_implicit(name, self.environment)

    def get_provider(self, name: str) -> ProviderSettings:
        """A provider with its key.

        Raises:
            ConfigError: No such provider, no key, no SDK, or settings that don't go together.
        """
        table = self.find_provider(name)
        if table is None:
            known = ", ".join(sorted({*self.providers, *IMPLICIT_PROVIDERS}))
            raise ConfigError(f"no provider `{name}` is configured (there are: {known})", param="model")
        settings = resolve_provider(name, table, self.environment)
        need_extra(settings.kind, provider=name)
        return settings

    def check_model(self, model: str) -> None:
        """Whether `NAME:MODEL` can be asked, as far as that can be told before it is.

        Raises:
            InvalidRequest: It isn't `NAME:MODEL`; or its provider isn't configured, or serves no such model.
            ConfigError: Its provider has no key or login, or settings that can't work.
        """
        name, colon, rest = model.partition(":")
        if not colon or not name or not rest:
            raise InvalidRequest(not_a_model(model), param="model")
        table = self.find_provider(name)
        if table is None:
            raise InvalidRequest(self._no_provider(name, model), param="model")
        why = why_not_served(table.kind, rest)
        if why is not None:
            raise InvalidRequest(f"provider `{name}`: {why}", param="model")
        self.get_provider(name)

    def _no_provider(self, name: str, model: str) -> str:
        table = describe_table(name)
        if table is not None:
            return f"no provider `{name}` is configured for model `{model}`: write {table} into a remit.toml"
        known = ", ".join(sorted({*self.providers, *IMPLICIT_PROVIDERS}))
        return (
            f"no provider `{name}` is configured for model `{model}`: write NAME:MODEL, where NAME is one of "
            f"{known}, or a [providers.NAME] of a remit.toml"
        )

    def find_webhook_secret(self) -> Secret | None:
        """What webhooks are signed with, as written; None: none is named, and none are sent.

        Raises:
            ConfigError: The one that is named isn't there.
        """
        return find_webhook_secret(self.host, self.environment)

    def get_pool(self, stage: StageBinding) -> PoolSettings:
        """The pool that serves a stage; a stage with a model of its own has a pool of one.

        Raises:
            ConfigError: No such pool, or not a `NAME:MODEL`.
        """
        if stage.model is not None:
            return pool_of_model(stage.model)
        name = stage.pool or "default"
        if name not in self.pools:
            raise ConfigError(f"no pool `{name}` is configured; add [pools.{name}]", param=f"pools.{name}")
        return self.pools[name]

    # ---- for a command on this machine

    def with_workspace(self, workspace: WorkspaceSettings) -> Config:
        """The same settings with one more workspace of the local node."""
        return replace(self, workspaces={**self.workspaces, workspace.ref: workspace})

    def find_workspace_at(self, root: Path) -> WorkspaceSettings | None:
        """The workspace whose root is this very folder."""
        for workspace in self.workspaces.values():
            try:
                if workspace.root.samefile(root):
                    return workspace
            except OSError:
                continue
        return None

    def with_folder(self, root: Path) -> tuple[Config, WorkspaceSettings]:
        """The same settings, and the workspace for a folder: a configured one, or one made up for it."""
        known = self.find_workspace_at(root)
        if known is not None:
            return self, known
        made = default_workspace(root, taken=set(self.workspaces))
        return self.with_workspace(made), made

    def make_data(self) -> Path:
        """Make the data folder; returns it.

        Raises:
            ConfigError: It can't be made, or lies inside a workspace's repository; then nothing was made.
        """
        refuse_data_inside(self.data, [workspace.root for workspace in self.workspaces.values()])
        return make_data_folder(self.data)

    def as_owner(self) -> Config:
        """The same settings for the owner of this machine, whom no binding holds back."""
        own = {
            name: binding.model_copy(update={"allow_override": ALL_OVERRIDES, "allow_models": ("*",)})
            for name, binding in self.bindings.items()
        }
        return replace(self, bindings=own)


def not_a_model(word: str) -> str:
    """What to say of a word that can't be a model's name."""
    return f"`{word}` isn't a model: write NAME:MODEL, such as openai:gpt-5.2"


def pool_of_model(model: str) -> PoolSettings:
    """A pool with one member.

    Raises:
        ConfigError: It isn't `NAME:MODEL`.
    """
    name, colon, rest = model.partition(":")
    if not colon or not name or not rest or any(character.isspace() for character in model):
        raise ConfigError(not_a_model(model), param="model")
    return PoolSettings(name=model, members=(PoolMember(model=model),))


def default_workspace(root: Path, *, taken: set[str]) -> WorkspaceSettings:
    """The workspace of a folder that nobody configured: all operations, a shell, no network, checks found."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", root.name).strip("-.")[:60] or "workspace"
    ref, number = plain, 1
    while ref in taken:
        number += 1
        ref = f"{plain}-{number}"
    return WorkspaceSettings.model_validate({"ref": ref, "root": root, "shell": True})


def default_bindings() -> dict[str, Binding]:
    """The bindings that are there when none is configured: `reviewed` and `direct`, at most 5 USD a run."""
    limits = LimitRequest.model_validate({"max_cost_usd": DEFAULT_MAX_COST_USD})
    return {
        "reviewed": Binding(name="reviewed", profile="reviewed", limits=limits),
        "direct": Binding(name="direct", profile="direct", limits=limits),
    }
