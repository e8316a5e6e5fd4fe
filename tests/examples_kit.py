"""How many examples a property is tried with: few after each change, many in the profile `nightly`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(usually: int, **more: Any) -> settings:
    """Settings with this many examples; in the profile `nightly` with as many as that says.

    Args:
        usually: The number where it has to be quick.
        more: Other settings.
    """
    if settings.get_current_profile_name() == "nightly":
        return settings(**more)
    return settings(max_examples=usually, **more)
