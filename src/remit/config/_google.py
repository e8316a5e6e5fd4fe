"""Where Google's own library looks for a login: the file of a variable, gcloud's own, or the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["why_no_google_login"]

_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_PRODUCT: Final = Path("/sys/class/dmi/id/product_name")
_ON_GOOGLE: Final = ("K_SERVICE", "GAE_RUNTIME", "GCE_METADATA_HOST", "KUBERNETES_SERVICE_HOST")
"""Variables of places where Google gives what runs there a login."""


def why_no_google_login(environment: Mapping[str, str], *, product: Path = _PRODUCT) -> str | None:
    """What to do about a login that isn't there; None: there is one, or the machine may be given one.

    Nothing is asked over the network: whether a login still holds shows when it is used.
    """
    named = environment.get(_VARIABLE, "").strip()
    if named:
        return None if _is_file(Path(named)) else f"{_VARIABLE} names {named}, which can't be read"
    config = environment.get("CLOUDSDK_CONFIG", "").strip()
    home = Path(environment.get("HOME") or "/nonexistent")
    folder = Path(config) if config else home / ".config" / "gcloud"
    if _is_file(folder / "application_default_credentials.json"):
        return None
    if any(environment.get(name, "").strip() for name in _ON_GOOGLE) or _is_googles(product):
        return None
    return (
        "run `gcloud auth application-default login`, let "
        f"{_VARIABLE} name a service account's file, or give it an API key by api_key_env"
    )


def _is_file(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False


def _is_googles(product: Path) -> bool:
    """Whether this is a machine of Google's cloud."""
    try:
        return "google" in product.read_text("utf-8").lower()
    except (OSError, UnicodeDecodeError):
        return False
