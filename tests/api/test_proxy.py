"""The proxy of `docs/operating/proxy.md` in front of the real service."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import re
import shutil
import socket
import subprocess
import tempfile

import httpx2
import pytest

from tests.api.raw import Served, wait_until
from tests.api.reach_ends import code_of_close, open_socket, send_proof
from tests.api.service import TOKEN
from tests.api.test_server import BIG, SHA256, download_of, service_served
from tests.databases import SQLiteDatabases

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PAGE = Path(__file__).parents[2] / "docs" / "operating" / "proxy.md"
ETAG = f'"{SHA256}"'
_CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; {user} worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {shown}
}}
"""

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases, redis_url: str
) -> Iterator[tuple[httpx2.Client, str]]:
    """A client of the proxy, and the path of a download."""
    folder = tmp_path_factory.mktemp("proxied")
    settings = {"allowed_hosts": "torchyard.example.com", "sendfile": "x-accel-redirect:/protected-blobs"}
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "torchyard.example.com", "Accept-Encoding": "identity"}
    with (
        service_served(folder, sqlite, redis_url, **settings) as served,
        nginx(served) as url,
        httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as found,
    ):
        yield found, download_of(served)


@contextmanager
def nginx(served: Served) -> Generator[str]:
    """The URL of an nginx with the example of the page. Only addresses and paths differ."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shown = found[1]
    for ours, others in {
        "listen 80;": f"listen 127.0.0.1:{port};",
        "http://127.0.0.1:8000": served.url,
        "/var/lib/torchyard/blobs/": f"{served.folder}/blobs/",
    }.items():
        assert ours in shown
        shown = shown.replace(ours, others)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        user = "user root;" if os.getuid() == 0 else ""
        config.write_text(_CONFIG.format(folder=folder, user=user, shown=shown))
        with subprocess.Popen([str(NGINX), "-c", config, "-e", f"{folder}/error.log"]) as process:
            try:
                wait_until(lambda: _listens(port))
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def test_the_proxy_sends_the_file_as_the_service_would(client: tuple[httpx2.Client, str]) -> None:
    http, path = client
    answer = http.get(path)
    assert (answer.status_code, len(answer.content), answer.content[:5]) == (200, BIG, b"first")
    assert answer.headers["etag"] == ETAG
    assert answer.headers["repr-digest"].startswith("sha-256=:")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="digits-epoch-1.pt"'
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["server"].startswith("nginx")
    assert "x-accel-redirect" not in answer.headers
    head = http.head(path)
    assert (head.status_code, head.headers["content-length"], head.headers["etag"]) == (200, str(BIG), ETAG)


def test_ranges_and_etags_work_through_the_proxy(client: tuple[httpx2.Client, str]) -> None:
    http, path = client
    part = http.get(path, headers={"Range": "bytes=-6"})
    assert (part.status_code, part.content) == (206, b"\0\0last")
    assert part.headers["content-range"] == f"bytes {BIG - 6}-{BIG - 1}/{BIG}"
    resumed = http.get(path, headers={"Range": f"bytes={BIG - 4}-", "If-Range": ETAG})
    assert (resumed.status_code, resumed.content, resumed.headers["etag"]) == (206, b"last", ETAG)
    assert http.get(path, headers={"Range": f"bytes={BIG}-"}).status_code == 416
    held = http.get(path, headers={"If-None-Match": ETAG})
    assert (held.status_code, held.content) == (304, b"")


def test_the_proxy_serves_no_file_without_the_api(client: tuple[httpx2.Client, str]) -> None:
    http, path = client
    assert http.get(f"/protected-blobs/{SHA256[:2]}/{SHA256}").status_code == 404
    assert http.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_websocket_is_opened_through_the_proxy(client: tuple[httpx2.Client, str]) -> None:
    http, _ = client
    unknown = {"id": f"rch_{'0' * 32}", "meeting": 1, "secret": "00" * 32}
    unknown["url"] = f"/v1/reaches/{unknown['id']}/stream?meeting=1"
    named = f"http://torchyard.example.com:{http.base_url.port}"
    stranger = open_socket(named, unknown, "client", address=("127.0.0.1", http.base_url.port), legacy=True)
    send_proof(stranger, unknown, "client")
    assert code_of_close(stranger) == 4403
    stranger.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
