"""How a host is reached: the native HTTP API, with keys and streams.

What the doors need of a host is `ServedHost`; `App` makes them for one. Names that need the server's
libraries are loaded when they are first used, so that a host which isn't served needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remit.api._ports import (
    Cancelled,
    NodeRow,
    Places,
    ServedHost,
    ServedStore,
    WorkRow,
)

if TYPE_CHECKING:
    from remit.api._app import OPERATIONS, App
    from remit.api._keys import hash_secret, new_secret
    from remit.api._openapi import openapi_of
    from remit.api._server import DoorServer, listen_on
    from remit.api._settings import LOOPBACK_NAMES, DoorSettings, host_names

__all__ = [
    "LOOPBACK_NAMES",
    "OPERATIONS",
    "App",
    "Cancelled",
    "DoorServer",
    "DoorSettings",
    "NodeRow",
    "Places",
    "ServedHost",
    "ServedStore",
    "WorkRow",
    "hash_secret",
    "host_names",
    "listen_on",
    "new_secret",
    "openapi_of",
]

_HOMES = {
    "App": "remit.api._app",
    "DoorServer": "remit.api._server",
    "DoorSettings": "remit.api._settings",
    "LOOPBACK_NAMES": "remit.api._settings",
    "OPERATIONS": "remit.api._app",
    "hash_secret": "remit.api._keys",
    "host_names": "remit.api._settings",
    "listen_on": "remit.api._server",
    "new_secret": "remit.api._keys",
    "openapi_of": "remit.api._openapi",
}
"""Name -> the module that defines it, for those that aren't loaded at once."""


def __getattr__(name: str) -> Any:
    """Load a name from its home, once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
