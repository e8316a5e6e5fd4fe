"""What a client says of a host that it can't talk TLS with."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx2
import pytest

from remit.client import AsyncClient, Client
from remit.client._asking import trust_for
from remit.client._async import final_error
from remit.errors import ConfigError

URL = httpx2.URL("https://host.example:7433")
SAID = {
    "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)": (
        "what answers at https://host.example:7433 doesn't speak TLS; without it the address is "
        "http://host.example:7433"
    ),
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)": (
        "the certificate of https://host.example:7433 isn't trusted here (self-signed certificate); "
        "SSL_CERT_FILE names a file with the authority that signed it"
    ),
    "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)": (
        "there is no TLS with https://host.example:7433: [SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert "
        "protocol version (_ssl.c:1006)"
    ),
    "All connection attempts failed": (
        "the host at https://host.example:7433 doesn't answer (All connection attempts failed); is "
        "`remit serve` running?"
    ),
}


@pytest.mark.parametrize("cause", SAID)
def test_each_cause_has_its_sentence(cause: str) -> None:
    """Nobody is sent to plain HTTP, key and all, unless plain HTTP is what answered."""
    assert str(final_error(httpx2.ConnectError(cause), URL)) == SAID[cause]


@pytest.mark.parametrize("error", [httpx2.ReadError(""), httpx2.RemoteProtocolError("Server disconnected")])
def test_a_connection_that_is_broken_off(error: httpx2.TransportError) -> None:
    """Asked without TLS: the host has ended, or waits for TLS; asked by TLS, it doesn't answer."""
    said = str(final_error(error, httpx2.URL("http://host.example:7433")))
    assert said.startswith("the host at http://host.example:7433 broke off (")
    assert said.endswith("If it speaks TLS, write https://host.example:7433")
    assert "doesn't answer" in str(final_error(error, URL))


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
@pytest.mark.parametrize("make", [Client, AsyncClient])
@pytest.mark.parametrize("is_there", [True, False])
def test_certificates_that_cannot_be_read_are_a_setting(
    make: type[Client | AsyncClient],
    scheme: str,
    is_there: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R73: SSL_CERT_FILE is named, and what is wrong with it, however the address is written."""
    named = tmp_path / "authority.pem"
    if is_there:
        named.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(named))
    with pytest.raises(ConfigError, match=f"SSL_CERT_FILE: {named} holds no certificates"):
        make(f"{scheme}://127.0.0.1:7433")
    make("http://127.0.0.1:7433")


def test_without_it_the_machine_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """R73: what the machine trusts is there where nothing was named."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = trust_for("https://127.0.0.1:7433")
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
