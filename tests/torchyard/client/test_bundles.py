"""Uploads, lists and downloads of bundles, by both clients."""

from collections.abc import Iterator
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from backports import zstd
import pytest

from tests.torchyard.client.answers import NOW, page
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, Request, problem
from torchyard.client import Client
from torchyard.client.packing.bundle import Bundle, pack
from torchyard.contract.bundles.parts import parts_in
from torchyard.contract.errors import Conflict, NotFound, QuotaExceeded, ServerUnreachable

ABSENT = problem("not_found", 404)


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n" * 100)
    with pack(folder) as packed:
        yield packed


def path_of(bundle: Bundle) -> str:
    return f"/v1/bundles/{bundle.sha256}"


def view(bundle: Bundle, received: int | None = None) -> dict[str, Any]:
    state = {"files": 1, "state": "complete"} if received is None else {"files": None, "state": "partial"}
    arrived = bundle.size if received is None else received
    return {"sha256": bundle.sha256, "size": bundle.size, "received": arrived, "created_at": NOW, **state}


def sent(request: Request) -> bytes:
    assert request.headers["Content-Encoding"] == "zstd"
    return zstd.decompress(request.body)


def uploads(server: FakeServer) -> list[Request]:
    return [request for request in server.requests if request.method == "PUT"]


def test_a_bundle_that_the_server_has_is_not_sent(server: FakeServer, client: Client, bundle: Bundle) -> None:
    server.on(path_of(bundle), view(bundle))
    seen: list[tuple[int, int]] = []
    found = client.bundles.upload(bundle, progress=lambda done, total: seen.append((done, total)))
    assert (found.state, found.files) == ("complete", 1)
    assert [request.method for request in server.requests] == ["GET"]
    assert seen == [(bundle.size, bundle.size)]


def test_a_new_bundle_is_sent_compressed(server: FakeServer, client: Client, bundle: Bundle) -> None:
    server.on(path_of(bundle), ABSENT, Answer(view(bundle), 201))
    seen: list[int] = []
    assert client.bundles.upload(bundle, progress=lambda done, _: seen.append(done)).state == "complete"
    (request,) = uploads(server)
    assert request.query == {"offset": ["0"], "size": [str(bundle.size)]}
    assert sent(request) == b"".join(bundle.read())
    assert len(request.body) < bundle.size / 2
    assert (seen[0], seen[-1]) == (0, bundle.size)


@pytest.mark.parametrize(
    "failure",
    [
        Answer(status=0),
        problem("conflict", 409, received=700),
        problem("unavailable", 503),
        problem("too_many_requests", 429),
    ],
    ids=["cut", "conflict", "full", "busy"],
)
def test_an_upload_continues_where_the_server_says(
    server: FakeServer, client: Client, bundle: Bundle, failure: Answer
) -> None:
    server.on(path_of(bundle), ABSENT, failure, view(bundle, 700), Answer(view(bundle), 201))
    assert client.bundles.upload(bundle).state == "complete"
    first, second = uploads(server)
    assert (first.query["offset"], second.query["offset"]) == (["0"], ["700"])
    assert sent(second) == b"".join(bundle.read(700))


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Bundle]:
    """A bundle of several parts."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.bin").write_bytes(Random(number).randbytes(1 << 20))
    with pack(folder, asks_git=False) as packed:
        yield packed


OLD = "ab" * 32


def run_of(bundle: Bundle, index: int, count: int, *, start: int = 0, lie: int = 0) -> dict[str, Any]:
    size = sum(part.size for part in parts_in(bundle.parts)[index : index + count]) + lie
    return {"index": index, "count": count, "source": OLD, "start": start, "size": size}


def test_what_the_server_has_in_another_bundle_is_copied_and_the_rest_is_sent(
    server: FakeServer, client: Client, large: Bundle
) -> None:
    first, second, *_ = (part.size for part in parts_in(large.parts))
    server.on("/v1/bundles/parts", {"data": [run_of(large, 0, 1, start=7), run_of(large, 2, 3, start=99)]})
    server.on(path_of(large), ABSENT, Answer(view(large, first + second), 202))
    server.on(f"{path_of(large)}/copy", Answer(view(large, first), 202), Answer(view(large), 201))
    copied: list[int] = []
    assert client.bundles.upload(large, on_copied=copied.append).state == "complete"
    asked = [json.loads(request.body) for request in server.requests if request.path == "/v1/bundles/parts"]
    assert asked == [{"parts": [part.sha256.hex() for part in parts_in(large.parts)]}]
    one, other = (request.query for request in server.requests if request.path.endswith("/copy"))
    assert (one["offset"], one["start"], one["length"], one["source"]) == (["0"], ["7"], [str(first)], [OLD])
    assert (other["offset"], other["start"]) == ([str(first + second)], ["99"])
    (put,) = uploads(server)
    assert sent(put) == b"".join(large.read(first, first + second))
    assert sum(copied) == large.size - second


def test_a_bundle_that_is_gone_meanwhile_and_an_answer_that_does_not_fit_are_made_up_for(
    server: FakeServer, client: Client, large: Bundle
) -> None:
    wrong = [run_of(large, 1, 1, lie=1), run_of(large, 3, 99)]
    server.on("/v1/bundles/parts", {"data": [run_of(large, 0, 1), *wrong]})
    server.on(path_of(large), ABSENT, ABSENT, Answer(view(large), 201))
    server.on(f"{path_of(large)}/copy", ABSENT)
    assert client.bundles.upload(large).state == "complete"
    assert len([request for request in server.requests if request.path.endswith("/copy")]) == 1
    (put,) = uploads(server)
    assert sent(put) == b"".join(large.read())


def test_an_upload_waits_as_long_as_the_server_asks(server: FakeServer, connect: Connect, bundle: Bundle) -> None:
    busy = problem("unavailable", 503)
    patient = Answer(busy.body, 503, {**busy.headers, "Retry-After": "60"})
    server.on(path_of(bundle), ABSENT, patient)
    with connect(server.url, TOKEN, patience=5) as client, pytest.raises(Exception, match="What happened") as raised:
        client.bundles.upload(bundle)
    assert getattr(raised.value, "retry_after", None) == 60
    assert len(uploads(server)) == 1


def test_an_upload_without_progress_ends_with_an_error(server: FakeServer, connect: Connect, bundle: Bundle) -> None:
    server.on(path_of(bundle), view(bundle, 700))
    with connect(server.url, TOKEN, patience=0.3) as client, pytest.raises(ServerUnreachable, match="700 of"):
        client.bundles.upload(bundle)


@pytest.mark.parametrize(
    ("answer", "kind"), [(problem("quota_exceeded", 403), QuotaExceeded), (problem("conflict", 409), Conflict)]
)
def test_a_refused_upload_is_not_repeated(
    server: FakeServer, client: Client, bundle: Bundle, answer: Answer, kind: type[Exception]
) -> None:
    server.on(path_of(bundle), ABSENT, answer)
    with pytest.raises(kind):
        client.bundles.upload(bundle)
    assert len(uploads(server)) == 1


def test_bundles_are_listed_shown_and_deleted(server: FakeServer, client: Client, bundle: Bundle) -> None:
    server.on("/v1/bundles", page([view(bundle)], more=True, next="1:2"), page([view(bundle, 5)]))
    assert [item.state for item in client.bundles.list()] == ["complete", "partial"]
    assert server.requests[-1].query["after"] == ["1:2"]
    server.on(path_of(bundle), view(bundle, 5))
    assert client.bundles.get(bundle.sha256).received == 5
    with pytest.raises(NotFound, match="5 of"):
        client.bundles.download(bundle.sha256)
    server.on(path_of(bundle), Answer(b"", 204))
    client.bundles.delete(bundle.sha256)
    assert server.requests[-1].method == "DELETE"


def test_a_bundle_is_downloaded_whole(server: FakeServer, client: Client, bundle: Bundle, tmp_path: Path) -> None:
    tar = b"".join(bundle.read())
    server.on(path_of(bundle), view(bundle))
    server.on(f"{path_of(bundle)}/content", Answer(tar))
    found = client.bundles.download(bundle.sha256, to=tmp_path)
    assert (found.name, hashlib.sha256(found.read_bytes()).hexdigest()) == (
        f"bundle-{bundle.sha256[:12]}.tar",
        bundle.sha256,
    )
