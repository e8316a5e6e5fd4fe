"""What runs and sessions are called inside a host, where those of all tenants meet."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from remit.errors import NotFound
from remit.primitives import clean_text

LOCAL_TENANT: Final = "local"
"""The tenant of whoever owns the machine."""
_SHOWN_CHARS: Final = 128
_MADE: Final = re.compile(r"t_[0-9a-f]{48}\Z")


def no_run(run_id: str) -> NotFound:
    """The answer for an id that names no run. The id is the caller's own, and may hold anything."""
    shown = clean_text(run_id)[0][:_SHOWN_CHARS]
    return NotFound(f"no run `{shown}`", run_id=shown)


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


def name_outside(tenant: str, run_id: str) -> str:
    """What a run is called where tenants aren't told apart, and only an id will do: on nodes, at providers.

    Its own id for the owner of the machine; made from both for others. Nobody can choose an id that becomes
    another tenant's name: what looks like a made one is made anew.
    """
    if tenant == LOCAL_TENANT and not _MADE.match(run_id):
        return run_id
    return "t_" + sha256(f"{tenant}/{run_id}".encode()).hexdigest()[:48]
