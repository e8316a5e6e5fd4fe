"""What must be installed beside the base for a provider kind."""

from __future__ import annotations

import importlib.util
from typing import Final

from remit.errors import ConfigError

_EXTRAS: Final = {
    "anthropic": ("anthropic", "anthropic"),
    "google": ("google", "google.genai"),
    "vertex": ("google", "google.genai"),
}
"""By kind: the extra of this distribution that brings its SDK, and a module of that."""


def need_extra(kind: str, *, provider: str) -> None:
    """Refuse a provider whose SDK isn't there.

    Args:
        kind: Its kind.
        provider: The configured provider's name.

    Raises:
        ConfigError: It isn't installed; the message says the command.
    """
    if kind not in _EXTRAS:
        return
    extra, module = _EXTRAS[kind]
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False  # not even its parent package is there
    if not found:
        raise ConfigError(
            f"provider `{provider}` needs what isn't installed: pip install 'remit[{extra}]'",
            param=f"providers.{provider}",
        )
