"""The socket at which ranks that torchrun starts get their secrets."""

from collections.abc import Generator
import json
import os
from pathlib import Path
import socket

import pytest

from worker.engines.local.launchers.secrets import SecretServer

VALUES = {"KEY": "x" * 2_000_000}
"""More than a socket takes at once."""


@pytest.fixture
def server(tmp_path: Path) -> Generator[SecretServer]:
    server = SecretServer(tmp_path / "secrets.sock", VALUES, is_peer=lambda pid, uid: True)
    yield server
    server.close()


def _connected(server: SecretServer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(server.path))
    return connection


def _read(connection: socket.socket, server: SecretServer) -> bytes:
    """Reads to the end, while the server takes its turns."""
    connection.setblocking(False)
    content = b""
    while True:
        server.answer()
        try:
            part = connection.recv(1 << 20)
        except BlockingIOError:
            continue
        if not part:
            return content
        content += part


def test_silent_peers_and_a_flood_do_not_keep_the_values_from_another(server: SecretServer) -> None:
    silent = [_connected(server) for _ in range(20)]
    for _ in silent:
        server.answer()
    with _connected(server) as reading:
        assert json.loads(_read(reading, server)) == VALUES
    for connection in silent:
        connection.close()


def test_a_turn_without_a_connection_does_not_wait(server: SecretServer) -> None:
    server.answer()


def test_a_peer_that_has_ended_gets_nothing_although_its_pid_is_allowed(server: SecretServer) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        probe = _connected(server)
        try:
            os.close(probe.getsockopt(socket.SOL_SOCKET, 77))
        except OSError:
            pytest.skip("this kernel does not say which process has connected")
        finally:
            probe.close()
        child = os.fork()
        if child == 0:
            connection.connect(str(server.path))
            os._exit(0)
        os.waitpid(child, 0)
        assert _read(connection, server) == b""
