"""What a provider says of itself and its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remit.models._settings import ProviderSettings

LOCAL_WINDOW_TOKENS = 32_768
"""What a model of a local server is run with, where nobody says more: memory is taken for all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a provider says of a model; None where it says nothing."""

    window_tokens: int | None = None
    max_output_tokens: int | None = None
    tools: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What came of looking."""

    reachable: bool | None
    """None: nobody was asked."""
    why: str = ""
    """One sentence of it where it wasn't reached, or wasn't asked."""
    models: Mapping[str, ModelFacts] | None = field(default_factory=dict[str, ModelFacts])
    """The models that it lists; None: it lists none."""


async def look_up(settings: ProviderSettings, *, model: str | None = None) -> Looked:
    """Ask a provider which models it has; never raises for what it does.

    Args:
        settings: The provider.
        model: A model to ask for by name, where the provider tells more of one.
    """
    # Deferred: it loads an HTTP client, which most programs load later and in a thread.
    from remit.models._looking import look_at  # noqa: PLC0415

    return await look_at(settings, model=model)
