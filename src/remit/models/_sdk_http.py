"""What SDK clients share below their dialects: connections, waits, proxies, headers."""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

import remit
from remit.errors import ConfigError
from remit.models._lanes import LanedTransport
from remit.models._settings import ProviderSettings
from remit.models._transport import ObservingTransport, Waits
from remit.models._wire_connection import WireConnection
from remit.primitives import Secret

NO_KEY = "no-key-is-set"
"""SDKs insist on a key; a provider without one gets no header."""
_KEEPALIVE_S = 20.0
_WRITE_S = 60.0


def waits_of(settings: ProviderSettings) -> Waits:
    """How long a provider's replies may take."""
    return Waits(first_byte_s=settings.first_byte_timeout_ms / 1000, idle_s=settings.idle_timeout_ms / 1000)


def user_agent() -> str:
    """How we introduce ourselves."""
    return f"remit/{remit.__version__}"


def make_observed(
    settings: ProviderSettings, inner: httpx2.AsyncBaseTransport | None = None
) -> ObservingTransport:
    """The transport under an SDK."""
    return ObservingTransport(inner or make_transport(settings))


def make_http_client(
    settings: ProviderSettings, transport: ObservingTransport, on_request: Callable[..., Any]
) -> httpx2.AsyncClient:
    """The HTTP client under an SDK: our transport, nothing compressed, no redirects."""
    return httpx2.AsyncClient(
        transport=transport,
        event_hooks={"request": [on_request]},
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        timeout=make_timeout(settings),
    )


def own_headers(settings: ProviderSettings) -> dict[str, Any]:
    """The headers that are configured."""
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in settings.headers.items()
    }


def make_ssl_context(settings: ProviderSettings) -> ssl.SSLContext:
    """Whom to trust: the system's certificates, or those that are configured.

    Raises:
        ConfigError: They can't be read.
    """
    named, path = f"providers.{settings.name}.ca_file", settings.ca_file
    try:
        if path is not None:
            return ssl.create_default_context(cafile=str(path))
        named, path = "SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE")
        return httpx2.create_ssl_context()
    except OSError as error:  # also what isn't a file of certificates
        raise ConfigError(f"{named}: {path} holds no certificates that can be read ({error})") from None


def make_transport(settings: ProviderSettings) -> httpx2.AsyncBaseTransport:
    context = make_ssl_context(settings)
    proxy = settings.proxy or proxy_from_environment(settings.url)
    context.set_alpn_protocols(["http/1.1"])
    limits = httpx2.Limits(max_connections=1, keepalive_expiry=_KEEPALIVE_S)

    def lane() -> httpx2.AsyncBaseTransport:
        if proxy is None:
            return WireConnection(context, keepalive_s=_KEEPALIVE_S)
        return httpx2.AsyncHTTPTransport(verify=context, limits=limits, proxy=proxy)

    return LanedTransport(lane, keepalive_s=_KEEPALIVE_S)


def make_timeout(settings: ProviderSettings) -> httpx2.Timeout:
    """Only connecting and writing are bounded here; reading is the transport's affair."""
    return httpx2.Timeout(connect=settings.connect_timeout_ms / 1000, read=None, write=_WRITE_S, pool=None)


def proxy_from_environment(url: str) -> str | None:
    """The proxy that the environment names for this address, as everywhere else on the machine."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
