"""The operations on models, by both clients."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.rows import each_row
from tests.torchyard.client.answers import DATA, JOB, NOW, SHA256, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.contract.errors import InvalidRequest, NotFound

VERSION: dict[str, Any] = {
    "owner": "ada",
    "name": "digits",
    "version": 3,
    "trainer": "image-classification",
    "job_id": "job_1",
    "checkpoint_id": "ckpt_1",
    "epoch": 1,
    "step": 9,
    "metrics": {"val/loss": "NaN"},
    "files": [
        {"path": "state.pt", "size": len(DATA), "sha256": SHA256},
        {"path": "a b&.txt", "size": len(DATA), "sha256": SHA256},
    ],
    "size": len(DATA),
    "sha256": SHA256,
    "stored_bytes": 2 * len(DATA),
    "created_at": NOW,
}
MODEL = {
    "owner": "ada",
    "name": "digits",
    "visibility": "team",
    "versions": 2,
    "stored_bytes": 2 * len(DATA),
    "newest": VERSION,
}
PATH = "/v1/models/ada/digits"


@pytest.fixture(autouse=True)
def me(server: FakeServer) -> None:
    server.on("/v1/me", {"name": "ada", "role": "member", "scopes": []})


def asked(server: FakeServer) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in server.requests]


def test_names_are_ones_own_and_who_that_is_is_asked_once(server: FakeServer, client: Client) -> None:
    server.on(f"{PATH}/versions/latest", VERSION)
    server.on(f"{PATH}/versions/3", {**VERSION, "card": {"parameters": 7}})
    server.on("/v1/models/b.ob%40example.com/digits/versions/2", {**VERSION, "owner": "b.ob@example.com", "version": 2})
    assert client.models.version("digits").card is None
    assert client.models.version("digits@3").card == {"parameters": 7}
    assert client.models.version("b.ob@example.com/digits@2").owner == "b.ob@example.com"
    assert [path for _, path in asked(server)].count("/v1/me") == 1


@each_row("ref", ["", "a/b/c", "a@", "a@0", "a@x", "/a", "..", "a b", "a@1@2", "a\n", "x" * 101, "a@9999999999"])
def test_what_names_no_model_is_refused_without_a_request(server: FakeServer, client: Client, ref: str) -> None:
    with pytest.raises(InvalidRequest, match="names no model"):
        client.models.version(ref)
    assert server.requests == []


def test_a_checkpoint_is_kept_by_its_id(server: FakeServer, client: Client) -> None:
    checkpoint = {key: VERSION[key] for key in ("epoch", "step", "metrics", "files", "size", "sha256", "created_at")}
    checkpoint |= {"id": "ckpt_1", "attempt": 1, "aliases": ["best"]}
    server.on(f"{JOB}/checkpoints/best", checkpoint)
    server.on("/v1/models", Answer(VERSION, 201))
    assert client.models.add("digits", "job_1", visibility="team").version == 3
    assert json.loads(server.requests[-1].body) == {"name": "digits", "from": "job_1/ckpt_1", "visibility": "team"}


def test_models_and_versions_are_listed_in_pages(server: FakeServer, client: Client) -> None:
    server.on("/v1/models", page([MODEL], more=True, next="ada/digits"), page([{**MODEL, "name": "z"}]))
    assert [model.name for model in client.models.list(owner="ada")] == ["digits", "z"]
    assert server.requests[-1].query == {"owner": ["ada"], "limit": ["1000"], "after": ["ada/digits"]}
    server.on(f"{PATH}/versions", page([VERSION], more=True, next="3"), page([{**VERSION, "version": 1}]))
    assert [version.version for version in client.models.versions("digits")] == [3, 1]
    server.on(PATH, MODEL)
    assert client.models.get("digits@1").versions == 2


def test_models_are_shared_and_removed(server: FakeServer, client: Client) -> None:
    server.on(PATH, MODEL, Answer(b"", 204))
    assert client.models.share("digits", "team").visibility == "team"
    assert (server.requests[-1].method, json.loads(server.requests[-1].body)) == ("PATCH", {"visibility": "team"})
    client.models.remove("ada/digits")
    server.on(f"{PATH}/versions/3", Answer(b"", 204))
    client.models.remove("digits@3")
    assert [request for request in asked(server) if request[0] == "DELETE"] == [
        ("DELETE", PATH),
        ("DELETE", f"{PATH}/versions/3"),
    ]


def test_a_download_verifies_the_file_and_continues(server: FakeServer, client: Client, tmp_path: Path) -> None:
    server.on(f"{PATH}/versions/latest", VERSION)
    named = {"Content-Disposition": 'attachment; filename="digits-v3.pt"'}
    server.on(f"{PATH}/versions/3/download", Answer(DATA, 200, named))
    path = client.models.download("digits", to=tmp_path / "work")
    assert (path, path.read_bytes()) == (tmp_path / "work" / "digits-v3.pt", DATA)
    part = Path(f"mine.pt.{SHA256[:12]}.part")
    part.write_bytes(DATA[:10])
    rest = {"Content-Range": f"bytes 10-{len(DATA) - 1}/{len(DATA)}"}
    server.on(f"{PATH}/versions/3/download", Answer(DATA[10:], 206, rest))
    assert client.models.download("digits", to="mine.pt", file="a b&.txt").read_bytes() == DATA
    last = server.requests[-1]
    assert (last.headers["Range"], last.query["file"]) == ("bytes=10-", ["a b&.txt"])


def test_a_file_that_is_not_listed_is_not_asked_for(server: FakeServer, client: Client, approved: Approved) -> None:
    server.on(f"{PATH}/versions/3", VERSION)
    with pytest.raises(NotFound) as raised:
        client.models.download("digits@3", file="x")
    assert str(raised.value) == approved("message")
    server.on(f"{PATH}/versions/4", problem("not_found", 404))
    with pytest.raises(NotFound):
        client.models.download("digits@4")
