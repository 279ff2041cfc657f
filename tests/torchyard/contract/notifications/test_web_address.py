"""The one form of addresses that notifications are sent to."""

import pytest

from torchyard.contract.notifications import web_address


@pytest.mark.parametrize(
    ("address", "host", "port", "target"),
    [
        ("https://hooks.example.com/services/T0/B0/key", "hooks.example.com", 443, "/services/T0/B0/key"),
        ("http://Example.COM.", "example.com", 80, "/"),
        ("https://chat.internal:8065/hooks/a?b=c%20d", "chat.internal", 8065, "/hooks/a?b=c%20d"),
        ("https://192.0.2.7/x", "192.0.2.7", 443, "/x"),
        ("https://[2001:DB8:0::1]:8443/x", "2001:db8::1", 8443, "/x"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/"),
    ],
)
def test_an_address_has_one_reading(address: str, host: str, port: int, target: str) -> None:
    found = web_address.parse(address)
    assert (found.host, found.port, found.target) == (host, port, target)


@pytest.mark.parametrize(
    "address",
    [
        *("", "hooks.example.com", "//hooks.example.com/", "ftp://example.com/", "file:///etc/passwd", "HTTPS://a.b/"),
        *("https://user:password@example.com/", "https://example.com@127.0.0.1/", "https://example.com:80@10.0.0.1/"),
        *("https://example.com\\@127.0.0.1/", "https://example.com\\.evil/", "https://127.0.0.1%2f@example.com/"),
        *("https://%31%32%37.0.0.1/", "https://bücher.example/", "https://①②⑦.⓪.⓪.①/", "https://127。0。0。1/"),
        *("https://2130706433/", "https://0x7f000001/", "https://017700000001/", "https://127.1/", "https://0x7f.1/"),
        *("https://0177.0.0.1/", "https://127.0.0.01/", "https://127.0.0.256/", "https://1.2.3.4.5/", "https://0x/"),
        *("https://[::1/", "https://[::ffff:999.0.0.1]/", "https://[fe80::1%25eth0]/", "https://[]/", "https://::1/"),
        *("https://example.com:/", "https://example.com:0/", "https://example.com:65536/", "https://example.com:+80/"),
        *("https://a..b/", "https://-a.b/", f"https://{'a' * 64}.b/", "https:///x", "https://.a/", "https://a.b.c../"),
        *("https://a.b/x y", "https://a.b/\r\nHost: c", "https://a.b/\n", "https://a.b\r\n/", "https://a.b/\x00"),
        *("https://a.b/#fragment", "https://a.b?query", "https://a.b/ü", f"https://a.b/{'x' * 2048}", " https://a.b/"),
    ],
)
def test_what_programs_read_in_different_ways_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|host|port|xn--"):
        web_address.parse(address)
