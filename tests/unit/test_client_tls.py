"""What a client says of a host that it can't talk TLS with."""

from __future__ import annotations

import httpx2
import pytest

from remit.client._async import final_error

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
