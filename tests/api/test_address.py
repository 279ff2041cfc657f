"""The address of a request's client, whatever its headers say."""

from pathlib import Path

import pytest
from starlette.types import Scope

from api.server.address import client_address, host_of, is_local, is_trusted, peer_address
from api.settings import Settings
from tests.rows import each_row

PROXY = "10.0.0.1"


def settings(trusted_proxies: str) -> Settings:
    return Settings(data_dir=Path("unused"), trusted_proxies=trusted_proxies)


def scope(peer: str | None, *forwarded: str) -> Scope:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return {"type": "http", "client": None if peer is None else (peer, 5_000), "headers": headers}


@each_row(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.7", (), "192.0.2.7"),
        ("192.0.2.7", ("198.51.100.1",), "192.0.2.7"),  # not a proxy, so what it writes does not count
        (PROXY, (), PROXY),
        (PROXY, ("198.51.100.1",), "198.51.100.1"),
        (PROXY, ("203.0.113.9, 198.51.100.1",), "198.51.100.1"),  # the first one was sent by the client
        (PROXY, ("203.0.113.9", "198.51.100.1"), "198.51.100.1"),
        (PROXY, ("198.51.100.1, 10.0.0.2",), "198.51.100.1"),
        (PROXY, ("10.0.0.3, 10.0.0.2",), PROXY),
        (PROXY, ("198.51.100.1, nonsense",), PROXY),
        (PROXY, ("198.51.100.1,",), PROXY),
        (PROXY, ("2001:DB8::0:1",), "2001:db8::1"),
        (f"::ffff:{PROXY}", ("198.51.100.1",), "198.51.100.1"),
        ("fd00::1", ("198.51.100.1",), "198.51.100.1"),
        (None, ("198.51.100.1",), "local"),
    ],
)
def test_only_a_named_proxy_says_who_the_client_is(peer: str | None, forwarded: tuple[str, ...], client: str) -> None:
    assert client_address(scope(peer, *forwarded), settings("10.0.0.0/8, fd00::1")) == client


def test_nobody_is_trusted_without_the_setting() -> None:
    assert client_address(scope("127.0.0.1", "198.51.100.1"), settings("")) == "127.0.0.1"
    assert not is_trusted("local", settings("0.0.0.0/0, ::/0"))


def test_an_address_has_one_form() -> None:
    assert peer_address(("::ffff:192.0.2.7", 1)) == "192.0.2.7"
    assert peer_address(("testclient", 1)) == "testclient"


def test_limits_count_an_ipv6_host_by_its_network() -> None:
    assert host_of("2001:db8::1") == host_of("2001:db8::ffff") != host_of("2001:db8:0:1::1")
    assert host_of("192.0.2.7") == "192.0.2.7"


@pytest.mark.parametrize(
    ("peer", "headers", "local"),
    [
        ("127.0.0.1", {"host": "127.0.0.1:8000"}, True),
        ("127.0.0.1", {"host": "localhost:8000"}, True),
        ("::1", {"host": "[::1]:8000"}, True),
        ("::ffff:127.0.0.1", {"host": "localhost"}, True),
        ("192.0.2.7", {"host": "127.0.0.1:8000"}, False),
        (None, {"host": "localhost"}, False),
        ("127.0.0.1", {"host": "torchyard.example.com"}, False),
        ("127.0.0.1", {"host": "localhost.example.com"}, False),
        ("127.0.0.1", {}, False),
        *(
            ("127.0.0.1", {"host": "localhost", name: "127.0.0.1"}, False)
            for name in ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-real-ip", "via")
        ),
    ],
)
def test_a_client_is_local_if_it_connects_to_this_machine_itself(
    peer: str | None, headers: dict[str, str], local: bool
) -> None:
    found = {**scope(peer), "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    assert is_local(found, settings("")) == local
    assert not is_local(found, settings("127.0.0.1,::1"))
