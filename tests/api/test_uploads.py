"""Uploads of bundles over real connections, which end at any byte."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import hashlib
from pathlib import Path
from random import Random
import socket
import socketserver
import struct
import threading
from typing import Any

from backports import zstd
import httpx2
import pytest

from tests.api.bundles import Packed, packed
from tests.api.service import TOKEN, both_databases
from tests.api.serving import api_thread
from tests.torchyard.client.drivers import DRIVERS
from torchyard.client.packing import Bundle

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with which a close sends a reset."""


@pytest.fixture
def url(tmp_path: Path, database_url: str, redis_url: str) -> Generator[str]:
    with api_thread(tmp_path, database_url, redis_url) as url:
        yield url


@both_databases
@pytest.mark.parametrize("encoding", ["identity", "zstd"])
def test_an_upload_that_is_cut_at_any_byte_continues(url: str, encoding: str) -> None:
    random, bundle = Random(encoding), packed(size=400_000)
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
        best = 0
        for _ in range(25):
            received = received_of(client, bundle)
            assert best <= received <= len(bundle.tar)
            best = received
            request = raw_upload(bundle, offset=received, encoding=encoding)
            send_and_cut(url, request[: random.randrange(len(request))], reset=random.random() < 0.5)
        status = 0
        while status != 201:  # a connection that was cut may still be read
            received = received_of(client, bundle)
            answer = client.put(bundle.url, params=bundle.params(offset=received), content=bundle.tar[received:])
            status = answer.status_code
            assert status in {201, 409, 429}, answer.text
        assert client.get(f"{bundle.url}/content").content == bundle.tar


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.parametrize("driver", list(DRIVERS))
def test_the_client_uploads_over_connections_that_break(url: str, driver: str, tmp_path: Path) -> None:
    random, bundle = Random(driver), packed(size=6_000_000)
    tar = tmp_path / "bundle.tar"
    tar.write_bytes(bundle.tar)
    budgets = [random.randrange(700_000) for _ in range(8)]
    seen: list[int] = []
    with cutting_proxy(url, budgets) as proxy, DRIVERS[driver](proxy, TOKEN) as client:
        mine = Bundle(tar, bundle.sha256, len(bundle.tar), ())
        view = client.bundles.upload(mine, progress=lambda done, _: seen.append(done))
        assert (view.state, seen[-1]) == ("complete", len(bundle.tar))
        assert budgets == []
        fetched = client.bundles.download(bundle.sha256, tmp_path / "fetched.tar")
    assert hashlib.sha256(fetched.read_bytes()).hexdigest() == bundle.sha256


def received_of(client: httpx2.Client, bundle: Packed) -> int:
    answer = client.get(bundle.url)
    return answer.json()["received"] if answer.status_code == 200 else 0


def raw_upload(bundle: Packed, *, offset: int, encoding: str) -> bytes:
    body = bundle.tar[offset:]
    if encoding == "zstd":
        body = zstd.compress(body)
    head = (
        f"PUT {bundle.url}?offset={offset}&size={len(bundle.tar)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def send_and_cut(url: str, data: bytes, *, reset: bool) -> None:
    target = httpx2.URL(url)
    with socket.create_connection((target.host, target.port)) as connection, suppress(ConnectionError):
        connection.sendall(data)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


@contextmanager
def cutting_proxy(url: str, budgets: list[int]) -> Generator[str]:
    """A proxy whose first connections end after so many bytes to the server. It takes what it uses off `budgets`."""
    target = httpx2.URL(url)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            budget = budgets.pop() if budgets else None
            with socket.create_connection((target.host, target.port)) as server:
                answers = threading.Thread(target=copy, args=(server, self.request, None))
                answers.start()
                copy(self.request, server, budget)
                answers.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()


def copy(source: Any, target: Any, budget: int | None) -> None:
    """Copies until `source` ends or the budget is used up, and ends both."""
    with suppress(OSError):
        while data := source.recv(65_536):
            part = data if budget is None else data[:budget]
            target.sendall(part)
            budget = None if budget is None else budget - len(part)
            if budget == 0:
                break
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
