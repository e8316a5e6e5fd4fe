"""What a webhook says, how it is signed (Standard Webhooks), when it is tried, and where it may go."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from remit.contract import RunView
from remit.errors import ConfigError, InvalidRequest
from remit.events import terminal_type
from remit.primitives import dump_json, format_time

Network: TypeAlias = IPv4Network | IPv6Network

RETRY_AFTER_S: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds from a failed try to the next one; behind the last, none follows."""
_PREFIX: Final = "whsec_"
_FEWEST_BYTES: Final = 24
_MOST_BYTES: Final = 64
_UNICAST: Final = IPv6Network("2000::/3")
_DOCUMENTATION: Final = IPv6Network("3fff::/20")
_RELAY: Final = IPv4Network("192.88.99.0/24")
_ISATAP: Final = 0x5EFE
_ISATAP_GLOBAL: Final = 0x0200_5EFE
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PORT: Final = re.compile(r"(?::\d{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """Where a webhook goes."""

    host: str
    port: int
    path: str
    """With its query, as it stands in a request line."""
    is_tls: bool
    authority: str
    """As it stands in the header Host."""


def read_webhook_secret(text: str) -> bytes:
    """The key in a secret's written form, `whsec_` and base64 of 24 to 64 bytes.

    Raises:
        ConfigError: It isn't one. The message doesn't show it.
    """
    try:
        key = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.strip().startswith(_PREFIX) or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        raise ConfigError(
            f"the webhook secret isn't `{_PREFIX}` and base64 of {_FEWEST_BYTES} to {_MOST_BYTES} bytes"
        )
    return key


def read_target(url: str) -> WebhookTarget:
    """Where an address points.

    Raises:
        InvalidRequest: It isn't an http or https address, or it holds what doesn't belong there.
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidRequest("`webhook` isn't an address", param="webhook") from None
    if parts.scheme not in {"https", "http"} or not host or not url.isascii() or not url.isprintable():
        raise InvalidRequest("`webhook` must be an https address, in ASCII", param="webhook")
    if " " in url or "\\" in url or parts.fragment or "@" in parts.netloc:
        raise InvalidRequest("`webhook` takes no name, password, fragment or blank", param="webhook")
    if port == 0 or not _is_authority(parts.netloc):
        raise InvalidRequest("`webhook` has a host or a port that nothing can have", param="webhook")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(
        host=host, port=port or (443 if is_tls else 80), path=path, is_tls=is_tls, authority=parts.netloc
    )


def _is_authority(text: str) -> bool:
    """Whether this is a name or an address, and perhaps a port; what else a parser lets pass goes nowhere."""
    if text.startswith("["):
        address, closed, port = text[1:].partition("]")
        try:
            return bool(closed and IPv6Address(address).scope_id is None and _PORT.fullmatch(port))
        except ValueError:
            return False
    name, colon, port = text.partition(":")
    return bool(_NAME.fullmatch(name) and _PORT.fullmatch(colon + port))


def check_target(target: WebhookTarget, networks: Sequence[Network]) -> None:
    """Refuse at the door what is refused for certain later; a name is looked up only when it is used.

    Raises:
        InvalidRequest: It can't be reached from here.
    """
    try:
        found = may_reach(target.host, is_tls=target.is_tls, networks=networks)
    except ValueError:
        found = target.is_tls or bool(networks)
    if not found:
        raise InvalidRequest(
            "`webhook` must be https, at an address of the public network or of [host] webhook_networks",
            param="webhook",
        )


def may_reach(address: str, *, is_tls: bool, networks: Sequence[Network]) -> bool:
    """Whether a webhook may be sent to this address: a public one, or one that the operator has listed.

    In the clear only to this machine itself, and only where that is listed.

    Raises:
        ValueError: It isn't an address.
    """
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    listed = any(found in network for network in networks)
    if not is_tls:
        return listed and found.is_loopback
    return listed or _is_public(found)


def _is_public(found: IPv4Address | IPv6Address) -> bool:
    if not found.is_global or found.is_multicast or found.is_reserved or found.is_unspecified:
        return False
    if isinstance(found, IPv4Address):
        return found not in _RELAY
    # Given out for the public: not site-local of old, nor what this Python doesn't know the use of.
    if found not in _UNICAST or found in _DOCUMENTATION:
        return False
    # An IPv4 address inside, whichever: what takes it out is somebody else's.
    is_tunnel = int(found) >> 32 & 0xFFFF_FFFF in (_ISATAP, _ISATAP_GLOBAL)
    return found.sixtofour is None and found.teredo is None and not is_tunnel


def webhook_id(name: str) -> str:
    """The id of a run's webhook: the same at every try, on every host.

    Args:
        name: The run's, unique over all tenants.
    """
    return "msg_" + sha256(f"webhook of {name}".encode()).hexdigest()[:32]


def webhook_body(view: RunView) -> bytes:
    """The body: what has happened, when, and the whole run."""
    assert view.terminal is not None, "a webhook is sent for an ended run"
    assert view.ended_at is not None, "it has ended"
    return dump_json(
        {
            "type": terminal_type(view.terminal.kind),
            "timestamp": format_time(view.ended_at),
            "data": view.model_dump(mode="json", by_alias=True),
        }
    ).encode()


def webhook_headers(id_: str, *, at: datetime, body: bytes, key: bytes) -> Mapping[str, str]:
    """The headers of one try, signed (Standard Webhooks 1.0.0, scheme v1)."""
    seconds = str(int(at.timestamp()))
    signed = hmac.digest(key, f"{id_}.{seconds}.".encode() + body, "sha256")
    return {
        "webhook-id": id_,
        "webhook-timestamp": seconds,
        "webhook-signature": "v1," + base64.b64encode(signed).decode(),
    }
