"""One request to an address that a user entered, and what its receiver may do: attacks first."""

from collections.abc import Callable, Sequence
import gzip
from pathlib import Path
import socket
import ssl
import threading
import tracemalloc

import pytest

from controller.notifications.addresses import Allowed
from controller.notifications.failure import NotDelivered
from controller.notifications.http import MOST_BYTES, Http
from tests.approved import Approved
from tests.controller.notifications.certificates import certificate
from tests.controller.notifications.receivers import Behaviour, Receiver, answering, receiver, silent

SHORT_S = 0.3
_BOMB_BYTES = 10 << 20
"""Bytes of a compressed answer once it is expanded."""


def _http(found: Receiver, **changed: object) -> Http:
    return Http(Allowed.parse(f"127.0.0.1/32:{found.port}"), **{"exchange_s": 20.0, **changed})  # pyright: ignore[reportArgumentType]


def _fails(found: Receiver, **changed: object) -> NotDelivered:
    with pytest.raises(NotDelivered) as failed:
        _http(found, **changed).post(found.url(), b"{}", headers={})
    return failed.value


def test_a_request_arrives_whole() -> None:
    with receiver() as found:
        _http(found).post(found.url("/hook?a=b"), b'{"a": 1}', headers={"Content-Type": "application/json"})
    [(headers, body)] = found.requests
    assert headers[""] == "POST /hook?a=b HTTP/1.1"
    assert headers["host"] == f"127.0.0.1:{found.port}"
    assert (headers["content-type"], headers["accept-encoding"]) == ("application/json", "identity")
    assert body == b'{"a": 1}'


def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address() -> None:
    """DNS that answers with another address a moment later changes nothing."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    def resolve(name: str, timeout_s: float) -> Sequence[str]:
        assert (name, timeout_s) == ("rebinding.test", 20.0)
        return answers.pop(0)

    with receiver() as found:
        _http(found, resolve=resolve).post(found.url(host="rebinding.test"), b"", headers={})
    assert answers == [["127.0.0.2"]]
    assert found.requests[0][0]["host"] == f"rebinding.test:{found.port}"


def test_nothing_is_sent_where_an_address_is_not_allowed() -> None:
    with receiver() as found:
        for addresses in (["127.0.0.1", "10.0.0.1"], ["127.0.0.2"]):
            _fails(found, resolve=_answering(addresses))
    assert found.requests == []


def test_a_second_address_is_tried_where_the_first_does_not_answer() -> None:
    with receiver() as found:
        allowed = Allowed.parse(f"127.0.0.0/8:{found.port}")
        Http(allowed, resolve=_answering(["127.0.0.2", "127.0.0.1"])).post(found.url(), b"", headers={})
    assert len(found.requests) == 1


@pytest.mark.parametrize(
    "status",
    [
        "302 Found",
        "308 Permanent",
        *(
            pytest.param(status, marks=pytest.mark.thorough)
            for status in ("301 Moved", "303 See Other", "307 Temporary")
        ),
    ],
)
def test_a_redirect_is_not_followed(status: str, approved: Approved) -> None:
    with receiver() as other:
        location = f"Location: http://127.0.0.1:{other.port}/latest/meta-data/"
        with receiver(answering(status, b"", location)) as found:
            allowed = Allowed.parse(f"127.0.0.0/8:{found.port},127.0.0.0/8:{other.port}")
            with pytest.raises(NotDelivered) as raised:
                Http(allowed).post(found.url(), b"", headers={})
            assert str(raised.value) == approved.of_row("message")
    assert (len(found.requests), other.requests) == (1, [])


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as found:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        _http(found).post(found.url(), b"", headers={})
    assert (len(found.requests), proxy.requests) == (1, [])


class _Endless:
    """Sends 10 GB, as long as somebody reads."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {10 << 30}\r\n\r\n".encode())
        while self.sent < 10 << 30:
            connection.sendall(b"x" * 65536)
            self.sent += 65536


def _endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")


def _endless_interim(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)


def _another_protocol(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9\r\n\r\n")


def _nothing(connection: socket.socket) -> None:
    """Closes without an answer."""


def _dripping(beginning: bytes, part: bytes) -> Behaviour:
    """Sends a byte or so again and again: each read succeeds in time, and there is no end."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(beginning)
        connection.settimeout(0.02)
        while True:
            connection.sendall(part)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    return behave


def test_of_a_large_answer_little_is_read() -> None:
    """The receiver cannot go on sending once the client has left: what it has sent fits the buffers of both."""
    endless = _Endless()
    with receiver(endless) as found:
        _http(found).post(found.url(), b"", headers={})
    assert MOST_BYTES == 4096
    assert endless.sent < 100 << 20


def test_a_compressed_answer_is_not_expanded() -> None:
    small = gzip.compress(bytes(_BOMB_BYTES))
    with receiver(answering("200 OK", small, "Content-Encoding: gzip")) as found:
        tracemalloc.start()
        _http(found).post(found.url(), b"", headers={})
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < _BOMB_BYTES, "the answer in memory has fewer bytes than it stands for"


@pytest.mark.parametrize(
    "behave",
    [silent, _endless_interim, _dripping(b"HTTP/1.1 200 OK\r\n", b"X"), _dripping(b"", b"H")],
    ids=["silence", "interim answers", "dripping head", "dripping first line"],
)
def test_an_exchange_ends_in_time_whatever_the_receiver_does(behave: Behaviour) -> None:
    with receiver(behave) as found:
        error = _fails(found, exchange_s=SHORT_S)
    assert not error.final


@pytest.mark.parametrize("secure", [False, True])
def test_a_server_that_accepts_and_says_nothing_is_left(secure: bool, approved: Approved) -> None:
    """The kernel accepts for it: a request, or the first message of TLS, gets no answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Receiver(listening.getsockname()[1], "https" if secure else "http")
        error = _fails(found, exchange_s=SHORT_S)
    assert error.message == approved("message", short_s=f"{SHORT_S:g}")


def test_a_name_that_is_resolved_late_leaves_less_time_to_its_receiver() -> None:
    def resolve(name: str, timeout_s: float) -> Sequence[str]:
        del name
        threading.Event().wait(timeout_s)
        return ["127.0.0.1"]

    with receiver(silent) as found:
        assert not _fails(found, resolve=resolve, exchange_s=SHORT_S).final
    assert found.requests == []


def test_a_server_that_accepts_nobody_is_left() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        found = Receiver(listening.getsockname()[1])
        assert not _fails(found, exchange_s=SHORT_S).final


def test_a_body_that_drips_after_the_status_was_delivered() -> None:
    with receiver(_dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x")) as found:
        _http(found, exchange_s=3.0).post(found.url(), b"{}", headers={})  # so long the status may take
    assert [body for _, body in found.requests] == [b"{}"]


@pytest.mark.parametrize(
    "behave",
    [
        _endless_head,
        _another_protocol,
        _nothing,
        answering("500 Oops"),
        answering("404 Not Found"),
    ],
)
def test_a_failure_is_told_in_a_few_words(behave: Callable[[socket.socket], None], approved: Approved) -> None:
    with receiver(behave) as found:
        error = _fails(found)
    assert error.message == approved.of_row("message") and not error.final


def test_what_a_receiver_says_is_not_repeated() -> None:
    """Else whoever enters an address could read what a listed host answers."""
    with receiver(answering("403 secret-reason", b"secret-body", "X-Header: secret-header")) as found:
        assert "secret" not in _fails(found).message


def test_an_address_that_is_gone_is_not_tried_again() -> None:
    with receiver(answering("410 Gone")) as found:
        assert _fails(found).final


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7), ("99999", 3600), ("Fri, 27 Nov 2026 00:00:00 GMT", None), ("-1", None)]
)
def test_a_receiver_may_ask_for_time(value: str, seconds: float | None) -> None:
    with receiver(answering("429 Too Many Requests", b"", f"Retry-After: {value}")) as found:
        assert _fails(found).retry_after_s == seconds


@pytest.mark.parametrize("value", ["a\r\nX-Injected: b", "a\nb", "a\x00b"])
def test_a_header_cannot_bring_another(value: str) -> None:
    with receiver() as found, pytest.raises(NotDelivered):
        _http(found).post(found.url(), b"", headers={"webhook-id": value})
    assert found.requests == []


def test_a_port_where_nobody_listens_is_told() -> None:
    with receiver() as found:
        pass
    assert "refused" in _fails(found).message


@pytest.mark.parametrize(
    ("name", "trusted", "works"), [("hook.test", True, True), ("hook.test", False, False), ("other.test", True, False)]
)
def test_a_certificate_must_be_trusted_and_of_this_host(tmp_path: Path, name: str, trusted: bool, works: bool) -> None:
    authority, server = certificate(tmp_path, name)
    client = ssl.create_default_context(cafile=authority if trusted else None)
    with receiver(tls=server) as found:
        http = _http(found, resolve=_answering(["127.0.0.1"]), tls=client)
        if works:
            http.post(found.url(host="hook.test"), b"{}", headers={})
        else:
            with pytest.raises(NotDelivered, match="certificate"):
                http.post(found.url(host="hook.test"), b"{}", headers={})
    assert len(found.requests) == works


def test_the_default_verifies_certificates() -> None:
    assert Http(Allowed()).tls.verify_mode == ssl.CERT_REQUIRED
    assert Http(Allowed()).tls.check_hostname


def _answering(addresses: Sequence[str]) -> Callable[[str, float], Sequence[str]]:
    return lambda name, timeout_s: addresses
