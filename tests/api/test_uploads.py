"""Uploads of bundles over real connections, which end at any byte."""

from collections.abc import Generator
from contextlib import suppress
import hashlib
from pathlib import Path
from random import Random
import socket

from backports import zstd
import httpx2
import pytest

from tests.api.bundles import Packed, packed, packed_files
from tests.api.service import TOKEN
from tests.api.serving import api_thread
from tests.cutting import RESET, Cut, cutting_proxy
from tests.databases import quick_on_sqlite
from tests.torchyard.client.drivers import DRIVERS
from torchyard.client.packing.bundle import Bundle, pack


@pytest.fixture
def url(tmp_path: Path, database_url: str, redis_url: str) -> Generator[str]:
    with api_thread(tmp_path, database_url, redis_url) as url:
        yield url


@quick_on_sqlite
@pytest.mark.parametrize("encoding", [pytest.param("identity", marks=pytest.mark.thorough), "zstd"])
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
@pytest.mark.parametrize("driver", ["blocking", pytest.param("asyncio", marks=pytest.mark.thorough)])
def test_the_client_uploads_over_connections_that_break(url: str, driver: str, tmp_path: Path) -> None:
    random = Random(driver)
    mine = packed_folder(tmp_path / "code", {f"{number}.bin": random.randbytes(2_000_000) for number in range(3)})
    cuts = [Cut(to_server=random.randrange(700_000)) for _ in range(8)]
    seen: list[int] = []
    with cutting_proxy(url, cuts) as proxy, DRIVERS[driver](proxy, TOKEN) as client:
        view = client.bundles.upload(mine, progress=lambda done, _: seen.append(done))
        assert (view.state, seen[-1]) == ("complete", mine.size)
        assert cuts == []
        fetched = client.bundles.download(mine.sha256, tmp_path / "fetched.tar")
    assert hashlib.sha256(fetched.read_bytes()).hexdigest() == mine.sha256


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_the_client_sends_plainly_what_compresses_to_almost_nothing(url: str, tmp_path: Path) -> None:
    contents = {"a.bin": Random(1).randbytes(3_000_000), "b.bin": bytes(10_000_000), "c.py": b"print()\n"}
    mine = packed_folder(tmp_path / "code", contents)
    assert mine.sha256 == packed_files(contents).sha256
    with DRIVERS["blocking"](url, TOKEN) as client:
        view = client.bundles.upload(mine)
    assert view.state == "complete"


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_a_changed_file_does_not_send_the_others_again(url: str, tmp_path: Path) -> None:
    random, folder = Random(0), tmp_path / "data"
    packed_folder(folder, {f"{number}.bin": random.randbytes(1_500_000) for number in range(8)})
    copied: list[int] = []
    with DRIVERS["blocking"](url, TOKEN) as client:
        client.bundles.upload(pack(folder, asks_git=False), on_copied=copied.append)
        assert copied == []
        changed = packed_folder(folder, {"5.bin": random.randbytes(1_000_000), "new.bin": b"new"})
        view = client.bundles.upload(changed, on_copied=copied.append)
        assert view.state == "complete"
        assert 1_000_000 < changed.size - sum(copied) < 1_100_000
        fetched = client.bundles.download(changed.sha256, tmp_path / "fetched.tar")
    assert fetched.read_bytes() == b"".join(changed.read())


def packed_folder(folder: Path, contents: dict[str, bytes]) -> Bundle:
    """Writes files into a folder, and packs all of it."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return pack(folder, asks_git=False)


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
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
