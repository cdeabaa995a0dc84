"""S26: what webhooks may call, by URL and by address. Every spelling of an address that is refused is refused."""

from __future__ import annotations

import ipaddress

import pytest

from api.webhooks.addresses import CallPolicy, all_allowed, parse_networks, parse_ports
from api.webhooks.callees import CalleeError, parse_callee

POLICY = CallPolicy(ports=frozenset((443, 8443)))
INSIDE = POLICY._replace(networks=parse_networks("10.1.0.0/16, fd00:1::/64"))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.0.0.1", "0x7f.1", "127.1", "127.0.1", "010.0.0.1",
        "127.0.0.1.", "0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "168.63.129.16", "256.1.1.1", "1.2.3", "1.2.3.4.5", "0x", "1e100.0x1",
        "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[::127.0.0.1]",
        "[::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]",
        "[2002:808:808::1]", "[2001:0:808:808::1]", "[2001:db8::1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]",
        "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[100::1]", "[3fff::1]", "[5f00::1]", "[v1.x]", "[::1",
        "127。0。0。1", "①②⑦.⓪.⓪.①", "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "", ".", "-a.example.com",
        "a..example.com", "*.example.com", "exa mple.com", "example.com\t", "bücher.example",
    ],
)  # fmt: skip
def test_host_that_is_no_name_and_no_public_address_is_refused(host: str) -> None:
    with pytest.raises(CalleeError):
        parse_callee(f"https://{host}/hook", POLICY)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "ftp://example.com/", "gopher://example.com/", "file:///etc/passwd", "//example.com/",
        "example.com", "https:example.com", "https:/example.com", "https:\\\\example.com", " https://example.com/",
        "https://user@example.com/", "https://user:pass@example.com/", "https://example.com@127.0.0.1/",
        "https://127.0.0.1#@example.com/", "https://example.com\\@127.0.0.1/", "https://example.com/#part",
        "https://example.com:22/", "https://example.com:6379/", "https://example.com:80/", "https://example.com:0443x/",
        "https://example.com:/", "https://example.com:99999/", "https://example.com/a b",
        "https://example.com/\r\nX: y", "https://example.com/\0", "https://example.com/" + "a" * 2_000,
    ],
)  # fmt: skip
def test_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(CalleeError):
        parse_callee(url, POLICY)


@pytest.mark.parametrize(
    ("url", "called", "shown"),
    [
        (
            "HTTPS://Hooks.Example.COM/T0/B1?x=%20",
            "https://hooks.example.com/T0/B1?x=%20",
            "https://hooks.example.com/...",
        ),
        ("https://example.com", "https://example.com/", "https://example.com/"),
        ("https://example.com:443?a=1", "https://example.com/?a=1", "https://example.com/..."),
        ("https://example.com:8443/", "https://example.com:8443/", "https://example.com:8443/"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x", "https://8.8.8.8/..."),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("https://[::ffff:8.8.8.8]/", "https://[::ffff:808:808]/", "https://[::ffff:808:808]/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
    ],
)
def test_url_that_is_taken_has_one_spelling_and_hides_its_path(url: str, called: str, shown: str) -> None:
    found = parse_callee(url, POLICY)
    assert (found.url, found.shown) == (called, shown)
    assert parse_callee(found.url, POLICY) == found


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True), ("10.2.0.1", False), ("::ffff:10.1.2.3", True), ("64:ff9b::a01:203", True),
        ("fd00:1::5", True), ("fd00:2::5", False), ("127.0.0.1", False), ("8.8.8.8", True),
    ],
)  # fmt: skip
def test_network_of_the_operator_is_allowed_and_no_other(address: str, allowed: bool) -> None:
    assert INSIDE.allows(ipaddress.ip_address(address)) == allowed


def test_name_with_one_address_that_is_refused_is_refused() -> None:
    public, private = ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("10.0.0.1")
    assert all_allowed(POLICY, [public])
    assert not all_allowed(POLICY, [public, private]) and not all_allowed(POLICY, [])


@pytest.mark.parametrize("text", ["", "0", "65536", "443,x", "44³"])
def test_ports_of_the_settings_are_parsed_strictly(text: str) -> None:
    with pytest.raises(ValueError, match="ports"):
        parse_ports(text)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "all", "10.0.0.0/33"])
def test_networks_of_the_settings_are_parsed_strictly(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_networks(text)
