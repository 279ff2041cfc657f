"""Which addresses a notification may go to: attacks first."""

from collections.abc import Callable, Sequence
import ipaddress

import pytest

from controller.notifications.addresses import Allowed, checked, is_public
from controller.notifications.failure import NotDelivered
from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from torchyard.contract.notifications import web_address

NOT_PUBLIC = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3"),
    *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.0.1", "100.100.100.200", "100.64.0.1", "192.0.0.192", "168.63.129.16"),
    *("224.0.0.1", "239.255.255.255", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fe80::1%lo", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "::127.0.0.1", "::8.8.8.8"),
    *("64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::10.0.0.1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    *("2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1", "2a00:1450:0:1:0:5efe:a9fe:a9fe"),
    *("2001:db8::1", "2001:10::1", "2001:20::1", "3fff::1", "5f00::1", "4000::1"),
]
"""Loopback, private, link-local, shared, multicast and unspecified, those of protocols, and IPv4 in forms of IPv6."""

LONG_S = 120.0
"""More than any name takes here."""


def _to(host: str, port: int = 443) -> web_address.WebAddress:
    return web_address.WebAddress(secure=True, host=host, port=port, target="/")


def _answering(*addresses: str) -> Callable[[str, float], Sequence[str]]:
    def resolve(name: str, timeout_s: float) -> Sequence[str]:
        del name, timeout_s
        return addresses

    return resolve


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_not_public_is_refused_though_a_name_has_a_public_address_too(address: str, approved: Approved) -> None:
    for found in ([address], ["8.8.8.8", address], [address, "2606:4700::1111"]):
        with pytest.raises(NotDelivered) as raised:
            checked(_to("hook.example.com"), Allowed(), timeout_s=LONG_S, resolve=_answering(*found))
        assert str(raised.value) == approved("message")


def test_a_name_of_the_network_is_told_like_one_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does one come again where the other is given up."""

    def unknown(name: str, timeout_s: float) -> Sequence[str]:
        raise OSError("unknown")

    def slow(name: str, timeout_s: float) -> Sequence[str]:
        raise TimeoutError("slow")

    said = set[tuple[str, bool]]()
    for resolve in (unknown, slow, _answering(), _answering("10.1.2.3"), _answering("8.8.8.8", "127.0.0.1")):
        for port in (443, 22, 8065):
            with pytest.raises(NotDelivered) as refused:
                allowed = Allowed.parse("10.0.0.0/16:8065")
                checked(_to("db.internal", port), allowed, timeout_s=LONG_S, resolve=resolve)
            said.add((refused.value.message, refused.value.final))
    assert said == {
        ("db.internal has no address that notifications may go to: a public or a listed one", False),
        ("port 22 is not allowed: 80 and 443 are, and what the operator lists", True),
    }
    for why in ("unknown", "slow", "has no address", "10.1.2.3", "127.0.0.1"):
        assert f"db.internal, port 443: {why}" in caplog.text or f"listed: {why}" in caplog.text


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_given_up(address: str, approved: Approved) -> None:
    with pytest.raises(NotDelivered) as refused:
        checked(_to(address), Allowed(), timeout_s=LONG_S)
    assert str(refused.value) == approved.of_row("message")
    assert refused.value.final


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "2a00:1450::1", "2a00::5eff:a00:1"]
)
def test_public_addresses_are_taken(address: str) -> None:
    assert checked(_to("hook.example.com"), Allowed(), timeout_s=LONG_S, resolve=_answering(address, address)) == [
        address
    ]


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 5432])
def test_other_ports_are_refused(port: int, approved: Approved) -> None:
    with pytest.raises(NotDelivered) as raised:
        checked(_to("hook.example.com", port), Allowed(), timeout_s=LONG_S, resolve=_answering("8.8.8.8"))
    assert str(raised.value) == approved("message", port=port)


@pytest.mark.parametrize("name", ["localhost", "no-such-host.invalid"])
def test_a_name_without_a_public_address_may_have_one_later(name: str, approved: Approved) -> None:
    with pytest.raises(NotDelivered) as failed:
        checked(_to(name), Allowed(), timeout_s=LONG_S)
    assert str(failed.value) == approved.of_row("message")
    assert not failed.value.final


def test_a_listed_network_is_allowed_at_its_port_alone() -> None:
    allowed = Allowed.parse(" 10.1.0.0/16:8065, [fd00::/8]:443,")
    assert checked(_to("chat", 8065), allowed, timeout_s=LONG_S, resolve=_answering("10.1.2.3")) == ["10.1.2.3"]
    assert checked(_to("chat"), allowed, timeout_s=LONG_S, resolve=_answering("fd12::1", "8.8.8.8")) == [
        "fd12::1",
        "8.8.8.8",
    ]
    for host, port, addresses in (
        ("chat", 443, ["10.1.2.3"]),
        ("chat", 8065, ["10.2.0.1"]),
        ("chat", 8065, ["10.1.2.3", "127.0.0.1"]),
        ("chat", 8065, ["8.8.8.8"]),
        ("chat", 443, ["::ffff:10.1.2.3"]),
    ):
        with pytest.raises(NotDelivered):
            checked(_to(host, port), allowed, timeout_s=LONG_S, resolve=_answering(*addresses))


def test_a_listed_name_is_allowed_whatever_its_addresses_are() -> None:
    allowed = Allowed.parse("Chat.internal.:8065,mail.internal:443")
    assert checked(_to("chat.internal", 8065), allowed, timeout_s=LONG_S, resolve=_answering("127.0.0.1")) == [
        "127.0.0.1"
    ]
    for host, port in (("chat.internal", 443), ("x.chat.internal", 8065), ("internal", 8065)):
        with pytest.raises(NotDelivered):
            checked(_to(host, port), allowed, timeout_s=LONG_S, resolve=_answering("127.0.0.1"))


@pytest.mark.parametrize(
    "setting", ["chat", "chat:", ":443", "chat:0", "chat:70000", "10.0.0.1/8:443", "[::1]", "a/b:80"]
)
def test_a_wrong_list_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match="TORCHYARD_NOTIFY_ALLOW"):
        Allowed.parse(setting)


def test_every_address_in_a_form_of_ipv4_is_refused_without_being_listed() -> None:
    for prefix in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"):
        network = ipaddress.ip_network(prefix)
        assert not any(is_public(address) for address in (network[0], network[1], network[-1], network[1 << 20]))
