"""The proxy between programs and servers: it forwards, delays, holds and resets connections."""

from collections.abc import Generator
from pathlib import Path
import socket
import threading
import time

import pytest

from tests.chaos.proxy import Proxy, proxy

LONG_S = 10.0


@pytest.fixture
def echo(tmp_path: Path) -> Generator[Path]:
    """A server on a unix socket that says again what it hears."""
    path = tmp_path / "echo.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener,))
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LONG_S)


@pytest.fixture
def before(echo: Path) -> Generator[Proxy]:
    with proxy(echo) as made:
        yield made


def test_bytes_pass_both_ways(before: Proxy) -> None:
    with connected(before) as client:
        assert said(client, b"one") == b"one"
        assert said(client, b"two") == b"two"


def test_a_server_on_a_port_is_reached_too(before: Proxy) -> None:
    with proxy(before.port) as outer, connected(outer) as client:
        assert said(client, b"one") == b"one"


def test_a_slow_connection_delays_each_direction(before: Proxy) -> None:
    before.latency = 0.1
    with connected(before) as client:
        began = time.monotonic()
        assert said(client, b"one") == b"one"
        assert time.monotonic() - began >= 0.2


def test_a_partition_delays_bytes_and_loses_none(before: Proxy) -> None:
    with connected(before) as old:
        assert said(old, b"one") == b"one"
        before.hold()
        with connected(before) as new:
            for client in (old, new):
                client.sendall(b"two")
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(100)
                client.settimeout(LONG_S)
            before.heal()
            assert old.recv(100) == b"two"
            assert new.recv(100) == b"two"


def test_a_cut_resets_only_the_open_connections(before: Proxy) -> None:
    with connected(before) as old:
        assert said(old, b"one") == b"one"
        assert before.cut() == 1
        with pytest.raises(ConnectionResetError):
            old.recv(100)
    with connected(before) as new:
        assert said(new, b"two") == b"two"


def test_a_server_that_is_away_resets_its_clients(tmp_path: Path) -> None:
    with proxy(tmp_path / "nobody.sock") as made:
        with pytest.raises(ConnectionResetError), connected(made) as client:  # the reset may come before the answer
            client.recv(100)
        assert made.connections == 0


def connected(to: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", to.port), timeout=LONG_S)


def said(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(100)


def _serve(listener: socket.socket) -> None:
    try:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()
    except OSError:
        return  # closed


def _echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)
