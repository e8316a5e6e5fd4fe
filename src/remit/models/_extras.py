"""What must be installed beside the base for a provider kind."""

from __future__ import annotations

import importlib.util

from remit.errors import ConfigError


def need_extra(extra: str, module: str, *, provider: str) -> None:
    """Refuse a provider whose SDK isn't there.

    Args:
        extra: The extra of this distribution that brings it.
        module: A module of the SDK.
        provider: The configured provider's name.

    Raises:
        ConfigError: It isn't installed; the message says the command.
    """
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False  # not even its parent package is there
    if not found:
        raise ConfigError(
            f"provider `{provider}` needs what isn't installed: pip install 'remit[{extra}]'",
            param=f"providers.{provider}",
        )
