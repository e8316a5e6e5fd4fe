"""From settings to pools at work."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import assert_never, cast

from remit.errors import ConfigError
from remit.models._anthropic import AnthropicAdapter
from remit.models._attempt import Adapter
from remit.models._bedrock import BedrockAdapter
from remit.models._google import GoogleAdapter
from remit.models._members import Member, ProviderHandle
from remit.models._ollama import OllamaAdapter
from remit.models._openai_chat import OpenAIChatAdapter
from remit.models._openai_responses import ResponsesAdapter
from remit.models._pool import Pool, Prices
from remit.models._retry import Jitter
from remit.models._scripted import ScriptedAdapter
from remit.models._settings import PoolMember, PoolSettings, ProviderKind, ProviderSettings
from remit.primitives import Clock, Ids


class Providers:
    """The providers at work in a host: one client, and one pause, per configured provider.

    Pools that use the same provider share it, so that a rate limit met by one run is kept by all.
    """

    def __init__(self, *, clock: Clock, ids: Ids, jitter: Jitter = random.random) -> None:
        self.jitter = jitter
        self._clock = clock
        self._ids = ids
        self._handles: dict[str, ProviderHandle] = {}

    def handle(self, settings: ProviderSettings) -> ProviderHandle:
        """The provider with these settings; made when first asked for.

        Raises:
            ConfigError: Its settings can't work (a script that can't be read).
        """
        found = self._handles.get(settings.name)
        if found is None or found.settings != settings:
            found = ProviderHandle(settings=settings, adapter=self._make(settings))
            self._handles[settings.name] = found
        return found

    async def aclose(self) -> None:
        """Close all connections. Nothing may be in flight."""
        for handle in self._handles.values():
            await handle.adapter.aclose()
        self._handles.clear()

    def _make(self, settings: ProviderSettings) -> Adapter:
        kind = cast("ProviderKind", settings.kind)
        match kind:
            case "openai":
                return ResponsesAdapter(settings, clock=self._clock, ids=self._ids)
            case "openai-chat" | "openai-compatible" | "azure" | "openrouter":
                return OpenAIChatAdapter(settings, clock=self._clock, ids=self._ids)
            case "ollama":
                return OllamaAdapter(settings, clock=self._clock, ids=self._ids)
            case "anthropic":
                return AnthropicAdapter(settings, clock=self._clock, ids=self._ids)
            case "google" | "vertex":
                return GoogleAdapter(settings, clock=self._clock, ids=self._ids)
            case "bedrock":
                return BedrockAdapter(settings, clock=self._clock, ids=self._ids)
            case "scripted":
                return ScriptedAdapter(settings, clock=self._clock)
            case _:
                assert_never(kind)


def build_pool(
    settings: PoolSettings,
    providers: Mapping[str, ProviderSettings],
    *,
    clock: Clock,
    ids: Ids,
    prices: Prices | None = None,
    shared: Providers | None = None,
) -> Pool:
    """A pool at work.

    Args:
        settings: Its members.
        providers: The configured providers by name; those that its members name must be among them.
        clock: The clock.
        ids: Makes the ids of attempts and tool calls.
        prices: Where prices come from; None: only what is free has one.
        shared: The host's providers; None: this pool has its own (close it by `Pool.aclose`).

    Raises:
        ConfigError: A member names a provider that isn't configured, or one that can't work.
    """
    owner = shared or Providers(clock=clock, ids=ids)
    return Pool(
        name=settings.name,
        members=[
            Member(member, owner.handle(_provider(settings, member, providers)))
            for member in settings.members
        ],
        clock=clock,
        ids=ids,
        jitter=owner.jitter,
        prices=prices,
    )


def _provider(
    pool: PoolSettings, member: PoolMember, providers: Mapping[str, ProviderSettings]
) -> ProviderSettings:
    provider = providers.get(member.provider_name)
    if provider is None:
        known = ", ".join(sorted(providers)) or "none"
        raise ConfigError(
            f"pool `{pool.name}`: no provider `{member.provider_name}` is configured; there is {known}"
        )
    return provider
