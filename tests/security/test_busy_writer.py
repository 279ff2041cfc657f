"""What strangers can keep waiting while another program writes to the database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import socket
import sqlite3

import httpx2
import pytest
from sqlalchemy import make_url

from tests.api.service import TOKEN
from tests.api.serving import api_thread
from tests.databases import Databases, SQLiteDatabases
from tests.servers import redis_server

WRONG = 8
QUESTIONS = 20


@pytest.fixture(scope="module")
def databases(sqlite: SQLiteDatabases) -> Databases:
    return sqlite


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[str]:
    with redis_server(tmp_path) as redis_url, api_thread(tmp_path, database_url, redis_url) as url:
        yield url


def test_the_audit_of_wrong_tokens_keeps_nobody_from_signing_in(service: str, database_url: str) -> None:
    mine = {"Authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=service, headers=mine, trust_env=False, timeout=60) as admin:
        assert admin.post("/v1/users", json={"name": "bob", "role": "member"}).status_code == 201
        token = admin.post("/v1/tokens", json={"user": "bob"}).json()["token"]
        admin.headers["Authorization"] = f"Bearer {token}"
        assert admin.get("/v1/me").status_code == 200  # stores the token's first use of this minute
        writer = sqlite3.connect(make_url(database_url).database or "", isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(WRONG) as strangers:
            try:
                refused = [strangers.submit(_send_wrong, service) for _ in range(WRONG)]
                for _ in range(QUESTIONS):
                    assert admin.get("/v1/me").status_code == 200
                    assert not any(each.done() for each in refused)
            finally:
                writer.close()
            assert {each.result() for each in refused} == {b"401"}


def _send_wrong(service: str) -> bytes:
    """Returns the status of the answer to a wrong token."""
    address = make_url(service)
    with socket.create_connection((address.host or "", address.port or 0), timeout=60) as connection:
        connection.sendall(b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ty_x_y\r\n\r\n")
        return connection.recv(12)[9:]
