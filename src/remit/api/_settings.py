"""How the doors are set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings:
    """Bounds and names of the doors."""

    hosts: frozenset[str]
    """`NAME:PORT`, lower case: what a request's Host may be, matched exactly."""
    origins: frozenset[str] = frozenset()
    """Origins beside the host's own that may act, such as `https://console.example`."""
    scheme: str = "http"
    """What the host's own origin begins with."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Of a request; a larger one is refused without being read."""
    body_timeout_s: float = 30.0
    """From a request's head to the last byte of its body."""
    keep_alive_s: float = 15.0
    """Between two signs of life on a stream."""
    most_streams: int = 10_000
    """Streams that are open at once."""
    allowed_origins: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own = {f"{self.scheme}://{without_default_port(self.scheme, host)}" for host in self.hosts}
        full = {f"{self.scheme}://{host}" for host in self.hosts}
        object.__setattr__(self, "allowed_origins", frozenset({*own, *full, *self.origins}))


def host_names(names: frozenset[str] | set[str], port: int, *, scheme: str = "http") -> frozenset[str]:
    """The names with a port, and without it where the port is the scheme's own."""
    found: set[str] = set()
    for name in names:
        whole = name.lower() if has_port(name) else f"{name.lower()}:{port}"
        found |= {whole, without_default_port(scheme, whole)}
    return frozenset(found)


def has_port(name: str) -> bool:
    """Whether a host's name ends in a port."""
    return name.rpartition("]")[2].rpartition(":")[2].isdigit()


def without_default_port(scheme: str, host: str) -> str:
    """The host as browsers write it."""
    default = {"http": ":80", "https": ":443"}[scheme]
    return host.removesuffix(default)
