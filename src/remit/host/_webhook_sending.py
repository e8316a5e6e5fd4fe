"""One try of a webhook, over a connection of its own: an address once looked up is the one that is spoken to.

No proxy, no redirect, no reply body: the other side learns nothing of this network, and shows nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from remit.results import Network, WebhookTarget, may_reach

Reason: TypeAlias = Literal["address_refused", "not_found", "connect", "tls", "timeout", "protocol", "status"]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

WITHIN_S: Final = 15.0
"""For one try, from the look-up to the status."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r\n)")
_MOST_LINE_BYTES: Final = 8_192
_GONE: Final = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of one try."""

    reason: Reason | None
    """Why it failed; None: it was taken (a status of 200 to 299)."""
    status: int | None = None
    """What the other side said; None: nothing."""

    @property
    def is_final(self) -> bool:
        """Whether another try would be no use, or no right."""
        return self.reason in (None, "address_refused") or self.status == _GONE


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, by the system's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def send_webhook(
    target: WebhookTarget,
    *,
    headers: Mapping[str, str],
    body: bytes,
    networks: Sequence[Network],
    certificates: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    resolve: Resolve = look_up,
    within_s: float = WITHIN_S,
) -> Tried:
    """Try once. What goes wrong is the answer, never an exception.

    Args:
        target: Where to.
        headers: The signed ones.
        body: JSON.
        networks: Those that the operator has listed beside the public one.
        certificates: What a server's certificate is checked by.
        resolve: Looks a name up.
        within_s: How long it may take.
    """
    try:
        async with asyncio.timeout(within_s):
            return await _send(target, headers, body, networks, certificates, resolve)
    except TimeoutError:
        return Tried(reason="timeout")
    except (ssl.SSLError, ssl.CertificateError):
        return Tried(reason="tls")
    except socket.gaierror:
        return Tried(reason="not_found")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return Tried(reason="protocol")
    except OSError:
        return Tried(reason="connect")


async def _send(
    target: WebhookTarget,
    headers: Mapping[str, str],
    body: bytes,
    networks: Sequence[Network],
    certificates: Callable[[], ssl.SSLContext],
    resolve: Resolve,
) -> Tried:
    addresses = await resolve(target.host, target.port)
    # One that may not be reached spoils the name: which of them answers isn't ours to choose.
    if not addresses or not all(may_reach(one, is_tls=target.is_tls, networks=networks) for one in addresses):
        return Tried(reason="address_refused")
    context = await asyncio.to_thread(certificates) if target.is_tls else None
    reader, writer = await asyncio.open_connection(
        addresses[0],
        target.port,
        ssl=context,
        server_hostname=target.host if target.is_tls else None,
        limit=_MOST_LINE_BYTES,
    )
    try:
        writer.write(_request(target, headers, body))
        await writer.drain()
        line = await reader.readuntil(b"\r\n")
    finally:
        writer.transport.abort()
    found = _STATUS.match(line)
    if found is None:
        return Tried(reason="protocol")
    status = int(found[1])
    return Tried(reason=None if 200 <= status < 300 else "status", status=status)


def _request(target: WebhookTarget, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = {
        "Host": target.authority,
        "User-Agent": "remit",
        "Accept": "*/*",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body
