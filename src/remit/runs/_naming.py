"""What runs and sessions are called inside a host, where those of all tenants meet."""

from __future__ import annotations

from typing import Final

LOCAL_TENANT: Final = "local"
"""The tenant of whoever owns the machine."""


def name_in_host(tenant: str, id_: str) -> str:
    """A name unique over all tenants: an id is the caller's own choice, and unique in its tenant only.

    No id holds a slash, so no two of them share a name.
    """
    return id_ if tenant == LOCAL_TENANT else f"{tenant}/{id_}"


def tenant_of_name(name: str) -> str:
    """The tenant that a name belongs to."""
    tenant, slash, _ = name.partition("/")
    return tenant if slash else LOCAL_TENANT


def id_of_name(name: str) -> str:
    """The id that a name was made from."""
    return name.rpartition("/")[2]
