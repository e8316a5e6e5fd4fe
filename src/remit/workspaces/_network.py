"""What the settings say of the network, in the words of commands, of models and of programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from remit.workspaces.keeper._network_rules import nearby_ports, parse_rule
from remit.workspaces.keeper._plan import PROXY_PORT

__all__ = ["Network", "check_hosts", "describe_network", "network_hint", "proxy_environment", "wider_network"]

Network = bool | tuple[str, ...]
"""False: off. True: the machine's. Hosts, as `HOST:PORT`: those alone, through a proxy."""

_UNREACHABLE: Final = re.compile(
    r"Temporary failure in name resolution|Could not resolve host|Name or service not known|"
    r"EAI_AGAIN|ENOTFOUND|"
    r"Network is unreachable|ENETUNREACH|nodename nor servname|getaddrinfo failed|dial tcp: lookup |"
    r"failed to lookup address|UnknownHostException|Temporary failure resolving"
)
_LOOKED_AT: Final = 65_536


def check_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """The hosts, each once.

    Raises:
        ValueError: One isn't written as a rule; the message says how it is.
    """
    found = tuple(dict.fromkeys(hosts))
    for host in found:
        parse_rule(host)
    return found


def describe_network(network: Network) -> str:
    """For a model and for people: `off`, `on`, or which hosts."""
    if isinstance(network, bool):
        return "on" if network else "off"
    direct = " (on localhost without it)" if nearby_ports(network) else ""
    return f"only {', '.join(network)}, through the HTTP proxy that the environment names{direct}"


def wider_network(one: Network, other: Network) -> Network:
    """What reaches everything that either reaches."""
    if one is True or other is True:
        return True
    return tuple(dict.fromkeys((*(one or ()), *(other or ())))) or False


def proxy_environment() -> dict[str, str]:
    """What tells programs of the proxy."""
    address = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    nearby = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return {**dict.fromkeys(names, address), **nearby, "NODE_USE_ENV_PROXY": "1"}


def network_hint(network: Network, *, text: str, denied: Iterable[str], failed: bool) -> str | None:
    """What a model is told of the network after a command; None: it needn't be told anything.

    Args:
        network: What the command had.
        text: What it said.
        denied: What the proxy refused.
        failed: Whether it ended badly.
    """
    refused = list(denied)
    if refused:
        return f"[network: {'; '.join(refused)}]"
    if network is True or not failed or not _UNREACHABLE.search(text[-_LOOKED_AT:]):
        return None
    if network is False:
        return "[the network is off in this workspace; only what is there already can be used]"
    return f"[the network reaches {describe_network(network)}; names can't be looked up here]"
