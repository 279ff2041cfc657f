"""JSON is compressed for clients that accept it. Streams and downloads are sent as they are."""

import gzip
from secrets import token_hex
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.middleware import compression
from api.routes import jobs
from tests.api.service import ApiFixture
from tests.rows import each_row
from torchyard.contract.states import EndReason

LIST = "/v1/jobs"


@pytest.fixture
def job_id(service: ApiFixture) -> str:
    """A job that has ended with a checkpoint of a compressible file."""
    claim = service.start(service.submit()["id"])
    service.record(claim, checkpoints=[service.new_checkpoint(step=1, files={"state.pt": b"x" * 10_000})])
    service.end(claim, reason=EndReason.COMPLETED)
    return claim.job_id


def raw(client: TestClient, path: str, accepted: str) -> tuple[bytes, str | None]:
    """Returns the bytes that were sent, and their encoding."""
    with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
        assert answer.status_code == 200
        return b"".join(answer.iter_raw()), answer.headers.get("content-encoding")


@each_row("accepted", ["gzip", "br, GZIP;q=0.5", "deflate,x-gzip ; q=1.0"])
def test_a_list_is_compressed_if_the_client_accepts_gzip(service: ApiFixture, job_id: str, accepted: str) -> None:
    for name in ("second", "third", "fourth", "fifth"):
        service.submit(name=name)
    plain, encoding = raw(service.client, LIST, "identity")
    assert encoding is None
    small, encoding = raw(service.client, LIST, accepted)
    assert (encoding, gzip.decompress(small)) == ("gzip", plain)
    assert len(small) < len(plain) / 2
    answer = service.client.get(LIST, headers={"Accept-Encoding": accepted})
    assert answer.content == plain
    assert answer.headers["content-length"] == str(len(small))
    assert "Accept-Encoding" in answer.headers["vary"]
    assert "Accept-Encoding" in service.client.get(LIST, headers={"Accept-Encoding": ""}).headers["vary"]


@each_row("accepted", ["", "identity", "br", "gzip;q=0", "gzip;q=0.0", "gzip;q=x", "notgzip"])
def test_a_client_that_does_not_accept_gzip_gets_none(service: ApiFixture, job_id: str, accepted: str) -> None:
    content, encoding = raw(service.client, f"/v1/jobs/{job_id}", accepted)
    assert (encoding, content[:1]) == (None, b"{")


def test_an_answer_of_which_gzip_saves_less_than_1_kib_is_not_compressed(service: ApiFixture) -> None:
    service.submit(labels={f"key-{number}": token_hex(24) for number in range(5)})
    content, encoding = raw(service.client, LIST, "gzip")
    assert 1024 < len(content) < 2048
    assert len(content) - len(gzip.compress(content)) < 1024
    assert encoding is None


def test_a_long_answer_is_compressed_and_a_short_one_is_not(service: ApiFixture) -> None:
    assert raw(service.client, "/openapi.json", "gzip")[1] == "gzip"
    assert raw(service.client, "/healthz", "gzip") == (b'{"status":"ok"}', None)


def test_what_needs_no_token_is_compressed_once(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document takes some milliseconds of the threads that compress the answers of all."""

    def compress(body: bytes, level: int, *, mtime: int) -> bytes:
        pytest.fail(f"{len(body)} bytes are compressed again, at level {level} and time {mtime}")

    first = raw(service.client, "/openapi.json", "gzip")
    monkeypatch.setattr(compression.gzip, "compress", compress)
    assert raw(service.client, "/openapi.json", "gzip") == first
    assert raw(service.client, "/openapi.json", "identity")[1] is None


def test_streams_and_downloads_are_not_compressed(service: ApiFixture, job_id: str) -> None:
    sent, encoding = raw(service.client, f"/v1/jobs/{job_id}/stream", "gzip")
    assert (encoding, sent[:4]) == (None, b"id: ")
    sent, encoding = raw(service.client, f"/v1/jobs/{job_id}/checkpoints/latest/download", "gzip")
    assert (encoding, sent) == (None, b"x" * 10_000)


def test_an_etag_is_known_again_however_its_answer_was_encoded(service: ApiFixture, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}"
    plain, small = (service.client.get(path, headers={"Accept-Encoding": name}) for name in ("identity", "gzip"))
    assert small.headers["etag"] == f"W/{plain.headers['etag']}"
    for etag in (plain.headers["etag"], small.headers["etag"]):
        for name in ("identity", "gzip"):
            again = service.client.get(path, headers={"If-None-Match": etag, "Accept-Encoding": name})
            assert (again.status_code, again.content, again.headers.get("content-encoding")) == (304, b"", None)


def test_a_large_page_is_encoded_and_compressed_in_several_turns(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_PART_BYTES", 3000)
    monkeypatch.setattr(jobs, "_PART_ROWS", 4)
    ids = [service.submit()["id"] for _ in range(10)]
    turns, go_on = list[str](), service.app.state.services.reads.go_on

    async def counted(user: str, part: Any) -> Any:
        turns.append(user)
        return await go_on(user, part)

    monkeypatch.setattr(service.app.state.services.reads, "go_on", counted)
    answers = [service.client.get("/v1/jobs", headers={"Accept-Encoding": name}) for name in ("gzip", "identity")]
    assert answers[0].headers["Content-Encoding"] == "gzip"
    assert [row["id"] for row in answers[0].json()["data"]] == ids[::-1]
    assert answers[0].content == answers[1].content
    parts = -(-len(answers[1].content) // 3000)
    assert len(turns) == 2 * 2 + parts
