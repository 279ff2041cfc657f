"""One request without a token, whatever is in its head, costs no more than any other of its length."""

from collections.abc import Iterator
import json
from pathlib import Path
import re
from typing import Any

from fastapi.routing import iter_route_contexts
import pytest
from starlette.requests import Request

from api.app import create_app
from api.middleware.cookies import keep_plain
from api.settings import Settings
from tests.api.raw import Served
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_process
from tests.databases import SQLiteDatabases
from tests.servers import redis_server
from torchyard.contract.wire import findings

MOST = 8192
"""The bytes of the largest header, with its name."""
ATTACKS = {
    "Accept-Encoding": "gzip;q=0." + "1" * 8000 + "x",
    "Cookie": 'torchyard_0123456789ab="' + "\\" * 8000 + '"',
    "If-None-Match": "," * 8000,
    "Range": "bytes=" + "0-," * 2600,
    "X-Forwarded-For": "," * 8000,
    "Authorization": "Bearer" + " " * 8000 + "x",
    "Content-Type": "a/b" + '; x="\\' * 1100,
    "Origin": "http://" + "[" * 8000,
    "X-Request-ID": "a" * 8000 + "/",
}
"""Headers of nearly 8 KiB. With 32 KiB, the first held the event loop for 13 s, and the second for 1.2 s."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with (
        sqlite.migrated() as database_url,
        redis_server(tmp_path_factory.mktemp("redis")) as redis_url,
        api_process(folder, database_url, redis_url) as (process, url),
    ):
        yield Served(process, url, folder)


def stranger(path: str, **headers: str) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", "")).encode()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_large_header_is_answered_and_a_larger_one_is_refused(served: Served, name: str) -> None:
    value = ATTACKS[name]
    assert served.ask(stranger("/healthz", **{name: value})).status == 200
    assert served.ask(stranger("/v1/me", **{name: value})).status == 401
    larger = value + value[-1] * (MOST + 1 - len(name) - len(value))
    assert served.ask(stranger("/healthz", **{name: larger})).problem().code == "headers_too_large"


def test_a_long_query_is_answered(served: Served) -> None:
    for query in ("&" * 8000, "a=" * 4000, "%" * 8000, "limit=" + "9" * 8000, "state=" + "," * 8000):
        assert served.ask(stranger(f"/healthz?{query}")).status == 200
        assert served.ask(stranger(f"/v1/jobs?{query}")).status == 401


@pytest.mark.parametrize("path", ["/v1/session", "/v1/session/codes/check"])
def test_a_body_without_a_token_costs_little_and_is_counted_by_its_address(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """4 KB of unknown keys took 0.1 s of the event loop, and counted in no limit."""
    looked_at: list[Any] = []

    def look(*place: Any) -> None:
        looked_at.append(place)

    monkeypatch.setattr(findings, "_place", look)
    limited = service.app.state.services.settings.max_wrong_tokens_per_minute
    many = {f"k{number}": 1 for number in range(350)}
    wrong = [many, {"token": {"a": [1] * 500}}, {"code": "x", **many}, many, b"[" * 4000, b"not JSON"]
    sent = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in wrong]
    found = [service.client.post(path, content=sent[at % len(sent)]).status_code for at in range(limited + 2)]
    assert found == [422] * limited + [429] * 2
    assert looked_at == []
    assert service.client.post("/v1/session", json={"token": TOKEN}).status_code == 200


def test_a_part_of_a_path_matches_a_route_in_one_way(tmp_path: Path) -> None:
    """The framework makes an expression of each route: it takes one attempt only where parts cannot share a text."""
    settings = Settings(data_dir=tmp_path, token=TOKEN)  # pyright: ignore[reportArgumentType] - pydantic makes it a secret
    paths = {context.path or "" for context in iter_route_contexts(create_app(settings).routes)}
    assert len(paths) > 60
    for path in paths:
        *folders, last = path.split("/")
        assert all("{" not in folder or re.fullmatch(r"\{[a-z_0-9]+\}", folder) for folder in folders), path
        assert last.count("{") <= 1, path


def cookies_of(*sent: str) -> dict[str, str]:
    """Returns the cookies that a route sees, of those that were sent."""
    scope = {"type": "http", "headers": [(b"cookie", value.encode("latin-1")) for value in sent]}
    keep_plain(scope)
    return Request(scope).cookies


def test_only_plain_cookies_reach_the_parser_of_the_framework() -> None:
    """Python's parser goes through one with quotes again and again, before 3.11.10 and 3.12.6 (CVE-2024-7592)."""
    slow = 'other="' + "\\" * 5000 + '"'
    assert cookies_of(f"{slow}; torchyard_1=a-B_9", "b=2") == {"torchyard_1": "a-B_9", "b": "2"}
    assert cookies_of(f"{slow[:-1]}; torchyard_1=a", f"torchyard_1={'a' * 201}") == {"torchyard_1": "a"}
    assert cookies_of("a=b=c", "alone", "=", ";;;", 'x="y"', "ä=1", "z = 1 ") == {"z": "1"}
    assert cookies_of() == {}
