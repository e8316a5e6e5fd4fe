"""Which hosts a list lets through: attacks as data, with a resolver that says what an attacker likes."""

from __future__ import annotations

import pytest

from remit.workspaces._network import check_hosts, describe_network, network_hint, wider_network
from remit.workspaces.keeper._network_rules import (
    Denied,
    NetworkRules,
    nearby_ports,
    parse_rule,
    split_authority,
)

NAMES = {
    "public.example": ["93.184.216.34"],
    "deep.below.example": ["93.184.216.35"],
    "both.example": ["10.0.0.7", "93.184.216.36"],
    "rebound.example": ["127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "mapped.example": ["::ffff:10.0.0.1"],
    "nat.example": ["64:ff9b::7f00:1"],
    "sixtofour.example": ["2002:7f00:1::"],
    "zone.example": ["fe80::1%eth0"],
    "any.example": ["0.0.0.0"],
    "multicast.example": ["224.0.0.1"],
    "corp.example": ["10.20.0.5"],
    "xn--bcher-kva.example": ["93.184.216.37"],
}
LIST = (
    "public.example:443",
    "*.below.example:443",
    "both.example:443",
    *(f"{name}.example:*" for name in ("rebound", "metadata", "mapped", "nat", "sixtofour")),
    *(f"{name}.example:*" for name in ("zone", "any", "multicast", "corp", "gone")),
    "xn--bcher-kva.example:443",
    "localhost:8000",
    "192.0.2.7:5432",
    "10.20.0.0/16:443",
    "[2001:db8::7]:443",
)


def resolve(name: str, port: int) -> list[str]:
    del port
    if name not in NAMES:
        raise OSError(-2, "Name or service not known")
    return NAMES[name]


@pytest.fixture
def rules() -> NetworkRules:
    return NetworkRules(LIST, resolve=resolve)


@pytest.mark.parametrize(
    ("authority", "addresses"),
    [
        ("public.example:443", ("93.184.216.34",)),
        ("PUBLIC.Example.:443", ("93.184.216.34",)),
        ("deep.below.example:443", ("93.184.216.35",)),
        ("both.example:443", ("93.184.216.36",)),
        ("corp.example:443", ("10.20.0.5",)),
        ("localhost:8000", ("127.0.0.1", "::1")),
        ("192.0.2.7:5432", ("192.0.2.7",)),
        ("10.20.1.1:443", ("10.20.1.1",)),
        ("[2001:db8::7]:443", ("2001:db8::7",)),
        ("xn--bcher-kva.example:443", ("93.184.216.37",)),
    ],
)
def test_what_is_listed_passes_by_the_address_that_was_looked_at(
    rules: NetworkRules, authority: str, addresses: tuple[str, ...]
) -> None:
    """The connection goes to the checked address, so that a second answer for the name changes nothing."""
    assert rules.decide(*split_authority(authority)).addresses == addresses


ATTACKS = (
    # not in the list: other ports, names around it, lookalikes
    *("public.example:80", "evil.example:443", "public.example.evil.example:443", "xpublic.example:443"),
    *("below.example:443", "xbelow.example:443", "evil.example#.below.example:443", "localhost:8001"),
    # an address in every way of writing it
    *("127.0.0.1:8000", "127.1:443", "2130706433:443", "0x7f000001:443", "0x7f.0.0.1:443", "0177.0.0.1:443"),
    *("[::1]:8000", "[::ffff:127.0.0.1]:8000", "[::]:443", "0:443", "0.0.0.0:443", "127.0.0.1.:443"),
    *("[::ffff:192.0.2.8]:5432", "192.0.2.7:443", "192.0.2.07:5432", "10.21.0.1:443", "1:443"),
    *("169.254.169.254:80", "[fd00:ec2::254]:80", "[64:ff9b::7f00:1]:443", "[fe80::1%25eth0]:443"),
    # names that lead to addresses that aren't public
    *("rebound.example:443", "metadata.example:80", "mapped.example:443", "nat.example:443"),
    *("sixtofour.example:443", "zone.example:443", "any.example:443", "multicast.example:443"),
    *("corp.example:80", "gone.example:443"),
    # not a host and a port
    *("user@public.example:443", "public.example:443@evil.example:443", "public.example%2eevil:443"),
    *("public.example", "public.example:", ":443", "public.example:0", "public.example:65536"),
    *("public.example:443\r\nX: y", "public.example\0.evil:443", "public example:443", "bücher.example:443"),
    *(
        "public.example:４４３",
        "[public.example]:443",
        "[::1:443",
        "-public.example:443",
        "",
        "a" * 300 + ":443",
    ),
    *("public..example:443", ".:443", "*.below.example:443", "public.example:443:443"),
)


@pytest.mark.parametrize("authority", ATTACKS)
def test_nothing_else_passes(rules: NetworkRules, authority: str) -> None:
    """R2: neither by spelling, nor by an address, nor by what a name leads to; the reason is told."""
    with pytest.raises(Denied) as denied:
        rules.decide(*split_authority(authority))
    assert str(denied.value)


def test_an_answer_that_changes_is_asked_for_once() -> None:
    """DNS rebinding: the second answer, a private address, is never asked for."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])
    rules = NetworkRules(["public.example:443"], resolve=lambda name, port: next(answers))
    assert rules.decide("public.example", 443).addresses == ("93.184.216.34",)
    with pytest.raises(Denied, match="isn't a public address"):
        rules.decide("public.example", 443)


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "example.com",
            ":443",
            "example.com:0",
            "example.com:99999",
            "example.com:http",
            "*:443",
            "*.*.x:1",
        ),
        *("http://example.com:443", "user@example.com:443", "10.0.0.1/8:443", "::1:443:x", "0x7f.1:80", ""),
    ],
)
def test_an_entry_that_means_nothing_is_refused_with_a_reason(entry: str) -> None:
    """A list is read when settings are loaded; what it can't mean is said there."""
    with pytest.raises(ValueError, match=r"'"):
        check_hosts([entry])
    with pytest.raises(ValueError, match=r"'"):
        parse_rule(entry)


def test_listed_ports_of_localhost() -> None:
    """They are reached as they are; a name below it, another address or any port isn't one of them."""
    listed = ("localhost:1", "127.0.0.1:2", "[::1]:3", "127.0.0.0/8:4", "localhost:1", "a.localhost:5")
    assert nearby_ports((*listed, "127.0.0.2:6", "*.localhost:7", "localhost:*", "0.0.0.0/0:8", "x:9")) == (
        *(("127.0.0.1", 1), ("::1", 1), ("127.0.0.1", 2), ("::1", 3), ("127.0.0.1", 4)),
    )
    assert "on localhost without it" in describe_network(("localhost:1", "b:2"))
    assert "localhost" not in describe_network(("b:2",))


def test_networks_in_words_and_together() -> None:
    """What a model is told, and what a server gets that its own settings widen."""
    assert describe_network(False) == "off"
    assert "only a:1, b:2" in describe_network(("a:1", "b:2"))
    assert wider_network(("a:1",), False) == ("a:1",)
    assert wider_network(("a:1",), ("b:2", "a:1")) == ("a:1", "b:2")
    assert wider_network(False, True) is True
    assert wider_network(False, False) is False


@pytest.mark.parametrize(
    ("network", "text", "denied", "failed", "told"),
    [
        (False, "curl: (6) Could not resolve host: x", (), True, "the network is off"),
        (False, "all fine", (), True, None),
        (False, "Network is unreachable", (), False, None),
        (True, "Could not resolve host: x", (), True, None),
        (("a:1",), "dial tcp: lookup modules.example", (), True, "only a:1"),
        (("a:1",), "403", ("x:443 isn't among the hosts",), True, "x:443 isn't among the hosts"),
    ],
)
def test_a_model_is_told_why_it_reached_nothing(
    network: bool | tuple[str, ...], text: str, denied: tuple[str, ...], failed: bool, told: str | None
) -> None:
    """A denial is told in words of its own, so that the model doesn't try again and again."""
    hint = network_hint(network, text=text, denied=denied, failed=failed)
    assert (told in str(hint)) if told else hint is None
