"""Which hosts a command may reach: decides on names and addresses, never on text that only looks like one.

A rule is `HOST:PORT`. HOST is a name, `*.NAME` for all names below it, an address (`[::1]` in brackets), or a
range of addresses (`10.0.0.0/8`); PORT is a number or `*`. A name is looked up once, here, and the connection
goes to the very address that was looked at: an answer that changes meanwhile changes nothing. Addresses that
aren't public (loopback, private, link-local, the ones that stand for others) are refused unless a rule names
them as addresses. Standard library only.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Denied", "HostRule", "NetworkRules", "Target", "nearby_ports", "parse_rule", "split_authority"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_MAX_NAME: Final = 253
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
_NEARBY: Final = ("127.0.0.1", "::1")
"""What programs reach without a proxy: `localhost` in either family."""

Resolve = Callable[[str, int], Sequence[str]]
"""(name, port) -> its addresses as text; raises OSError where there is none."""


class Denied(Exception):
    """The target isn't to be reached; the message says why, for the model and for people."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of the list."""

    port: int | None
    """None: any."""
    name: str = ""
    """In lower case, without a final dot; empty where the rule is of addresses."""
    below: bool = False
    """`*.name`: the names below it, and not itself."""
    network: _Network | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection may go."""

    name: str
    port: int
    addresses: tuple[str, ...]
    """In the order in which they are tried; each was looked at."""


def parse_rule(text: str) -> HostRule:
    """One entry of the list.

    Raises:
        ValueError: It isn't one; the message says what is wrong.
    """
    host, found, port_text = text.rpartition(":")
    if not found or not host:
        raise ValueError(f'{text!r}: a host is written with its port, such as "example.com:443"')
    port = None if port_text == "*" else _port(port_text)
    if port_text != "*" and port is None:
        raise ValueError(f"{text!r}: the port is a number from 1 to 65535, or `*`")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return HostRule(port=port, network=ipaddress.ip_network(bare, strict=True))
    except ValueError:
        if "/" in bare or ":" in bare:
            raise ValueError(f"{text!r} isn't an address or a range of addresses") from None
    below = host.startswith("*.")
    name = _name(host.removeprefix("*."))
    if name is None or _looks_like_address(name):
        raise ValueError(f"{text!r}: the host is a name, `*.NAME`, or an address")
    return HostRule(port=port, name=name, below=below)


def nearby_ports(entries: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The listed ports of this machine's loopback: (address, port), each once.

    No program asks a proxy for what is on `localhost`, so these are shown at that very place.
    """
    found: dict[tuple[str, int], None] = {}
    for rule in map(parse_rule, entries):
        for address in _NEARBY:
            if rule.port is not None and _is_nearby(rule, address):
                found[address, rule.port] = None
    return tuple(found)


def _is_nearby(rule: HostRule, address: str) -> bool:
    if rule.network is None:
        return rule.name == "localhost" and not rule.below
    return rule.network.is_loopback and ipaddress.ip_address(address) in rule.network


def split_authority(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """The host and the port of `HOST:PORT`, as a client wrote them.

    Raises:
        Denied: It isn't an authority, or names a user.
    """
    if (
        not text.isascii()
        or "@" in text
        or "%" in text
        or any(char <= " " or char == "\x7f" for char in text)
    ):
        raise Denied(f"{text[:80]!r} isn't a host and a port")
    if text.startswith("["):
        host, found, rest = text[1:].partition("]")
        if not found or ":" not in host or (rest and not rest.startswith(":")):
            raise Denied(f"{text[:80]!r} isn't a host and a port")
        port_text = rest[1:]
    else:
        host, _, port_text = text.partition(":")
    port = _port(port_text) if port_text else default_port
    if not host or port is None:
        raise Denied(f"{text[:80]!r} isn't a host and a port")
    return host, port


class NetworkRules:
    """The list of one workspace.

    Args:
        entries: Rules as text.
        resolve: Looks names up; None: the machine's own way.
    """

    def __init__(self, entries: Sequence[str], *, resolve: Resolve | None = None) -> None:
        self._entries = tuple(entries)
        self._rules = tuple(parse_rule(entry) for entry in entries)
        self._resolve = resolve or _look_up

    def decide(self, host: str, port: int) -> Target:
        """Where a connection to this host may go.

        Raises:
            Denied: Nowhere.
        """
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return self._decide_name(host, port)
        if not self._lists(address, port):
            raise Denied(self._not_listed(host, port))
        return Target(host, port, (str(address),))

    def _decide_name(self, host: str, port: int) -> Target:
        name = _name(host)
        if name is None or _looks_like_address(name):
            raise Denied(f"{host[:80]!r} isn't the name of a host")
        if not any(_fits(rule, name) and rule.port in (None, port) for rule in self._rules):
            raise Denied(self._not_listed(name, port))
        # `localhost` is this machine by definition, so naming it names the address.
        loopback = name == "localhost" or name.endswith(".localhost")
        try:
            found = ["127.0.0.1", "::1"] if loopback else list(dict.fromkeys(self._resolve(name, port)))
        except OSError as error:
            raise Denied(f"{name} can't be looked up: {error.strerror or error}") from None
        allowed = [text for text in found if loopback or self._may_reach(text, port)]
        if not allowed:
            raise Denied(
                f"{name} is at {', '.join(found[:3]) or 'no address'}, which isn't a public address; "
                "the workspace's list must name the address itself"
            )
        return Target(name, port, tuple(allowed))

    def _may_reach(self, text: str, port: int) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:  # with a zone: link-local
            return False
        return is_public(address) or self._lists(address, port)

    def _lists(self, address: _Address, port: int) -> bool:
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            return self._lists(mapped, port)
        return any(
            rule.network is not None and address in rule.network and rule.port in (None, port)
            for rule in self._rules
        )

    def _not_listed(self, host: str, port: int) -> str:
        shown = ", ".join(self._entries[:10]) + (", ..." if len(self._entries) > 10 else "")
        return f"{host}:{port} isn't among the hosts of this workspace ({shown or 'none'})"


def is_public(address: _Address) -> bool:
    """Whether an address is one of the open internet, also where it only stands for another."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and (address in _NAT64 or address in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local or address in _NAT64_LOCAL:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _fits(rule: HostRule, name: str) -> bool:
    if not rule.name:
        return False
    return name.endswith("." + rule.name) if rule.below else name == rule.name


def _name(host: str) -> str | None:
    """The name in its one form; None where it isn't one."""
    try:
        name = host.lower().encode("ascii" if host.isascii() else "idna").decode("ascii")
    except UnicodeError:
        return None
    name = name.removesuffix(".")
    if not name or len(name) > _MAX_NAME or not all(_LABEL.match(label) for label in name.split(".")):
        return None
    return name


def _looks_like_address(name: str) -> bool:
    """Whether a resolver may take it for a number: `2130706433`, `0x7f.1`, `0177.0.0.1`, `127.1`."""
    last = name.rpartition(".")[2]
    return last.isdigit() or re.match(r"0x[0-9a-f]*\Z", last) is not None


def _port(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 5:
        return None
    number = int(text)
    return number if 1 <= number <= 65_535 else None


def _look_up(name: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
