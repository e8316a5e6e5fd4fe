"""Webhooks: where they may go, how they are signed, and what is refused at the door."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

import pytest

from remit.contract import Limits, RunStatus, RunView, Terminal
from remit.errors import ConfigError, InvalidRequest
from remit.results import (
    check_target,
    may_reach,
    read_target,
    read_webhook_secret,
    webhook_body,
    webhook_headers,
    webhook_id,
)

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
INSIDE = [
    "169.254.169.254", "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fe80::1%eth0",
    "fc00::1",
    "ff02::1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1", "::127.0.0.1",
    "fec0::1", "5f00::1", "4000::1", "3fff::1", "192.88.99.1", "2001:4860::5efe:7f00:1",
    "2001:4860::200:5efe:a01:203",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_the_inside_network_is_out_of_reach(address: str) -> None:
    """R81: no address that isn't public, in whatever form it is written."""
    assert not may_reach(address, is_tls=True, networks=())


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_take_tls_only(address: str) -> None:
    """R81: nothing leaves this machine in the clear, wherever it goes."""
    assert may_reach(address, is_tls=True, networks=())
    assert not may_reach(address, is_tls=False, networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))


def test_the_operator_may_list_networks() -> None:
    """R81: what is listed may be reached, and nothing beside it; in the clear only this machine."""
    assert may_reach("127.0.0.1", is_tls=False, networks=LOOPBACK)
    assert may_reach("::ffff:127.0.0.1", is_tls=False, networks=LOOPBACK)
    assert may_reach("10.1.2.3", is_tls=True, networks=(ip_network("10.1.0.0/16"),))
    assert not may_reach("10.2.2.3", is_tls=True, networks=(ip_network("10.1.0.0/16"),))
    assert not may_reach("10.1.2.3", is_tls=False, networks=(ip_network("10.1.0.0/16"),))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/x",
        "https://169.254.169.254/x",
        "http://[::ffff:127.0.0.1]:80/",
        "https://[::1]/",
        "http://example.org/x",
        "file:///etc/passwd",
        "https://user:word@example.org/",
        "https://example.org/#part",
        "https://example.org/a b",
        "https://example.org/a\r\nX: y",
        "https://example.org:99999/",
        "https://example.org:0/",
        "https://[::1%25lo]/",
        "https://[2606:4700::1111]x/",
        "https://%31%30.0.0.1/",
        "https://a,b/",
        "https://a;b/",
        "https://-/",
        "https://",
        "https://exämple.org/",
    ],
)
def test_bad_addresses_are_refused_at_the_door(url: str) -> None:
    """R81: what can't be reached for certain is said before the run is started."""
    with pytest.raises(InvalidRequest) as caught:
        check_target(read_target(url), ())
    assert caught.value.fields["param"] == "webhook"


def test_good_addresses_are_read() -> None:
    """Host, port, path and query go where they belong."""
    target = read_target("https://hooks.example:8443/a?b=c")
    assert (target.host, target.port, target.path, target.is_tls) == ("hooks.example", 8443, "/a?b=c", True)
    check_target(target, ())
    check_target(read_target("http://127.0.0.1:8080/"), LOOPBACK)


def _view(**fields: Any) -> RunView:
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    return RunView(
        id="run_1",
        session_id="run_1",
        root_run_id="run_1",
        binding="b",
        profile="reviewed",
        status=RunStatus.CANCELLED,
        created_at=moment,
        ended_at=moment,
        limits=Limits(),
        terminal=Terminal.of("cancelled", "caller"),
        **fields,
    )


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """`v1,` and the base64 of HMAC-SHA256 over id, seconds and body, joined by dots."""
    key = read_webhook_secret("whsec_" + base64.b64encode(b"k" * 32).decode())
    moment, body = datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC), webhook_body(_view())
    headers = webhook_headers("msg_1", at=moment, body=body, key=key)
    seconds = str(int(moment.timestamp()))
    expected = hmac.new(b"k" * 32, b"msg_1." + seconds.encode() + b"." + body, hashlib.sha256).digest()
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": seconds,
        "webhook-signature": "v1," + base64.b64encode(expected).decode(),
    }
    said = json.loads(body)
    assert (said["type"], said["data"]["id"], said["timestamp"][:10]) == (
        "run.cancelled",
        "run_1",
        "2026-11-30",
    )


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_x", "whsec_" + "A" * 8, "A" * 44, "whsec_!!!!" + "A" * 40]
)
def test_a_weak_secret_is_refused(text: str) -> None:
    """A secret has its prefix and enough bytes; the message doesn't show it."""
    with pytest.raises(ConfigError) as caught:
        read_webhook_secret(text)
    assert len(text) < 8 or text not in caught.value.message


def test_an_id_stands_for_a_run() -> None:
    """The same run has the same id at every try; two tenants' runs of one id have two."""
    assert webhook_id("run_1") == webhook_id("run_1") != webhook_id("t2/run_1")
