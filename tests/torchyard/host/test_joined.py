from collections.abc import Generator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import socket
import ssl
import stat
import threading

import pytest

from tests.controller.notifications.certificates import certificate
from torchyard.contract.errors import ConfigError
from torchyard.host.joined import JOINED_FILE, Joined, load, save, ssl_context


def joined(**values: str | None) -> Joined:
    known = {
        "url": "https://box-a:8000",
        "worker_id": f"wrk_{'0' * 32}",
        "name": "box-b",
        "token": "tyw_secret",
        "certificate": None,
    }
    return Joined.from_dict({**known, **values})


def test_what_was_joined_is_read_again_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / JOINED_FILE
    with pytest.raises(FileNotFoundError):
        load(path)
    before = os.umask(0)
    try:
        save(path, joined(certificate="PEM"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(path) == joined(certificate="PEM")
    assert "secret" not in repr(load(path))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may use it"):
        load(path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "http://box-a:8000"}, "url: .*https://HOST:PORT"),
        ({"url": "https://box-a:8000/v1"}, "url: "),
        ({"worker_id": "job_1"}, "worker_id: "),
        ({"token": "ty_secret"}, "token: "),
        ({"token": "tyw_a\nb"}, "token: "),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, wrong: dict[str, str], said: str) -> None:
    path = tmp_path / JOINED_FILE
    save(path, joined())
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(ConfigError, match=said):
        load(path)


def test_a_connection_trusts_the_certificate_of_the_file_alone(tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    _, own = certificate(tmp_path / "own", "another-name")
    _, other = certificate(tmp_path / "other", "localhost")
    pem = (tmp_path / "own" / "certificate.pem").read_text()
    context = ssl_context(joined(certificate=pem))
    with serving(own) as port:
        assert greeting(context, port) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            greeting(ssl_context(joined()), port)
    with serving(other) as port, pytest.raises(ssl.SSLCertVerificationError):
        greeting(context, port)
    with pytest.raises(ConfigError, match="cannot be read"):
        ssl_context(joined(certificate="PEM"))


def greeting(context: ssl.SSLContext, port: int) -> bytes:
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        return secured.recv(5)


@contextmanager
def serving(context: ssl.SSLContext) -> Generator[int]:
    """Greets one client after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(plain, server_side=True) as secured:
                        secured.sendall(b"hello")
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()
