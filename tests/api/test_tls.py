"""The service over TLS: what it does itself on a connection works there, too."""

from collections.abc import Generator
from pathlib import Path
import socket
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.api.bundles import packed
from tests.api.service import TOKEN
from tests.api.serving import api_thread
from torchyard.client import Client
from torchyard.contract.errors import ServerUnreachable
from torchyard.host import tls, trust


@pytest.fixture
def url(tmp_path: Path, database_url: str, redis_url: str) -> Generator[str]:
    with api_thread(tmp_path, database_url, redis_url, tls=True) as url:
        yield url


@pytest.fixture
def certificate(url: str, tmp_path: Path) -> str:
    return tls.own(tmp_path).text()


def test_a_client_that_knows_the_certificate_gets_whole_files(url: str, certificate: str) -> None:
    assert trust.fetch_certificate(url) == certificate
    bundle, headers = packed(size=3_000_000), {"Authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=url, headers=headers, verify=trust.context(certificate), trust_env=False) as http:
        assert http.put(bundle.url, params=bundle.params(), content=bundle.tar).status_code == 201
        assert http.get(f"{bundle.url}/content").content == bundle.tar
    with Client(url, TOKEN, certificate=certificate) as client:
        assert client.me().name == "admin"
    with pytest.raises(ServerUnreachable, match="certificate"), Client(url, TOKEN, patience=0) as client:
        client.me()


def test_a_request_that_is_refused_before_the_application_is_answered(url: str, certificate: str) -> None:
    address = urlsplit(url)
    plain = socket.create_connection((address.hostname, address.port), timeout=60)
    with plain, trust.context(certificate).wrap_socket(plain, server_hostname="localhost") as secured:
        assert (secured.version() or "") >= "TLSv1.2"
        secured.sendall(b"no HTTP\r\n\r\n")
        assert secured.recv(100).startswith(b"HTTP/1.1 400 ")
