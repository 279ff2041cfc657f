"""Parts of bundles that are not sent again: what is copied, whose it is, and what is refused."""

import hashlib
import io
from random import Random
from typing import Any

from httpx2 import Response
import pytest

from store.bundles import checking
from tests.api.bundles import Packed, packed, packed_files, upload, upload_whole
from tests.api.service import ApiFixture, both_databases
from torchyard.contract.bundles.parts import MOST_PART_BYTES, MOST_PARTS_ASKED, PartsReader, parts_in
from torchyard.contract.bundles.tar import verify
from torchyard.contract.team.roles import Role

KIB = 1 << 10


def files(*, changed: str = "", seed: int = 0) -> dict[str, bytes]:
    """60 files of 100 KiB, which make about six parts."""
    random = Random(seed)
    found = {f"d{number // 10}/{number:02}.bin": random.randbytes(100 * KIB) for number in range(60)}
    return found | ({changed: b"changed" + bytes(100)} if changed else {})


def parts_of(bundle: Packed) -> list[tuple[str, int]]:
    found = parts_in(verify(io.BytesIO(bundle.tar), needs_parts=True).parts)
    return [(part.sha256.hex(), part.size) for part in found]


def ask(service: ApiFixture, *digests: str) -> list[dict[str, Any]]:
    answer = service.client.post("/v1/bundles/parts", json={"parts": [*digests]})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def copy(service: ApiFixture, bundle: Packed, *, source: str, start: int, length: int, offset: int = 0) -> Response:
    place = {"source": source, "start": start, "length": length}
    return service.client.post(f"{bundle.url}/copy", params={**bundle.params(offset=offset), **place})


@both_databases
def test_what_an_earlier_bundle_has_is_copied_and_the_rest_is_sent(service: ApiFixture) -> None:
    before, after = packed_files(files()), packed_files(files(changed="d3/35.bin"))
    upload_whole(service.client, before)
    digests = [digest for digest, _ in parts_of(after)]
    first, last = ask(service, *digests)
    assert (first["index"], first["start"], first["source"]) == (0, 0, before.sha256)
    assert last["index"] + last["count"] == len(digests)
    assert len(after.tar) / 2 < first["size"] + last["size"] < len(after.tar)
    answer = copy(service, after, source=before.sha256, start=0, length=first["size"])
    assert (answer.status_code, answer.json()["received"]) == (202, first["size"])
    end = len(after.tar) - last["size"]
    assert upload(service.client, after, offset=first["size"], to=end).json()["received"] == end
    answer = copy(service, after, source=before.sha256, start=last["start"], length=last["size"], offset=end)
    assert (answer.status_code, answer.json()["state"], answer.json()["files"]) == (201, "complete", 60)
    assert service.client.get(f"{after.url}/content").content == after.tar
    assert [run["count"] for run in ask(service, *digests)] == [len(digests)]
    again = copy(service, after, source=before.sha256, start=0, length=1)
    assert again.status_code == 200


def test_nobody_learns_or_takes_what_another_user_has(service: ApiFixture) -> None:
    theirs = packed_files(files())
    digests = [digest for digest, _ in parts_of(theirs)]
    service.act_as("bob")
    upload_whole(service.client, theirs)
    assert len(ask(service, *digests)) == 1
    absent = "0" * 64
    for name, role in (("alice", Role.MEMBER), ("opal", Role.OPERATOR), ("admin", Role.ADMIN)):
        service.act_as(name, role)
        assert ask(service, *digests) == []
        answers = [copy(service, theirs, source=source, start=0, length=1000) for source in (theirs.sha256, absent)]
        assert [answer.status_code for answer in answers] == [404, 404]
        told = [answer.json()["detail"] for answer in answers]
        assert told[0].replace(theirs.sha256, absent) == told[1]
        assert service.client.delete(theirs.url).status_code == 404
    upload(service.client, theirs, to=1000)
    assert copy(service, theirs, source=theirs.sha256, start=0, length=1000, offset=1000).status_code == 404
    assert service.client.get(theirs.url).json()["received"] == 1000


def test_a_digest_is_given_for_its_bytes_alone(service: ApiFixture) -> None:
    """Whoever knows a digest, and has some bytes of it or others of the same length, gets nothing by them."""
    secret, own = packed_files(files(seed=1)), packed_files(files(seed=2))
    assert len(secret.tar) == len(own.tar)
    service.act_as("bob")
    upload_whole(service.client, secret)
    service.act_as("alice")
    upload_whole(service.client, own)
    answer = copy(service, secret, source=own.sha256, start=0, length=len(own.tar))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")
    assert service.client.get(secret.url).status_code == 404
    assert service.client.get(f"{secret.url}/content").status_code == 404
    assert len(service.get("/v1/bundles")["data"]) == 1


@pytest.mark.parametrize(
    ("start", "length", "status", "code"),
    [
        (0, 2**52, 422, "invalid_request"),
        (2**52, 1, 422, "invalid_request"),
        (-1, 1, 422, "invalid_request"),
        (0, 0, 422, "invalid_request"),
        (0, 2**63, 422, "invalid_request"),
    ],
)
def test_places_that_lie_are_refused(service: ApiFixture, start: int, length: int, status: int, code: str) -> None:
    source, target = packed(seed=1), packed(seed=2)
    upload_whole(service.client, source)
    answer = copy(service, target, source=source.sha256, start=start, length=length)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    upload_whole(service.client, target)


def test_no_more_is_copied_than_the_size_that_was_told(service: ApiFixture) -> None:
    source, target = packed(seed=1, size=60_000), packed(seed=2)
    upload_whole(service.client, source)
    answer = copy(service, target, source=source.sha256, start=0, length=len(source.tar))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")
    assert service.client.get(target.url).status_code == 404
    params = {**target.params(), "size": service.settings.max_bundle_bytes + 1}
    place = {"source": source.sha256, "start": 0, "length": 10}
    assert service.client.post(f"{target.url}/copy", params={**params, **place}).status_code == 413


def test_a_copy_counts_for_the_quota_and_continues_at_its_place_alone(service: ApiFixture) -> None:
    source, target = packed(seed=1, size=60_000), packed(seed=2, size=60_000)
    service.act_as("bob")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"stored_bytes": len(source.tar) + len(target.tar) - 1})
    service.act_as("bob")
    upload_whole(service.client, source)
    refused = copy(service, target, source=source.sha256, start=0, length=10)
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"stored_bytes": None})
    service.act_as("bob")
    refused = copy(service, target, source=source.sha256, start=0, length=10, offset=5)
    assert (refused.status_code, refused.json()["received"]) == (409, 0)


def test_a_copy_needs_the_scope_of_submissions_and_a_question_that_of_reading(service: ApiFixture) -> None:
    bundle = packed()
    service.act_as("vera", Role.VIEWER)
    assert copy(service, bundle, source="0" * 64, start=0, length=1).status_code == 403
    assert ask(service, "0" * 64) == []
    for wrong in ({"parts": []}, {"parts": ["x"]}, {"parts": ["0" * 64] * (MOST_PARTS_ASKED + 1)}, {}):
        assert service.client.post("/v1/bundles/parts", json=wrong).status_code in {413, 422}


def test_parts_of_a_bundle_that_was_deleted_or_lost_are_not_offered(service: ApiFixture) -> None:
    bundle = packed_files(files())
    digests = [digest for digest, _ in parts_of(bundle)]
    upload_whole(service.client, bundle)
    service.app.state.services.store.blobs.path(bundle.sha256).unlink()
    assert ask(service, *digests) == []
    upload_whole(service.client, bundle)
    assert len(ask(service, *digests)) == 1
    service.client.delete(bundle.url)
    assert ask(service, *digests) == []


@pytest.mark.parametrize("apart", [1 << 30, 0])
def test_a_small_and_a_large_upload_are_checked_alike(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    monkeypatch.setattr(checking, "APART_BYTES", apart)
    good = packed()
    cut = good.tar[:-1024]
    answer = service.client.put(
        f"/v1/bundles/{hashlib.sha256(cut).hexdigest()}", params={"size": len(cut)}, content=cut
    )
    assert (answer.status_code, "the tar is cut off" in answer.text) == (422, True)
    other = b"x" + good.tar[1:]
    answer = service.client.put(good.url, params=good.params(), content=other)
    assert (answer.status_code, "has the sha256" in answer.text) == (422, True)
    upload_whole(service.client, good)
    assert service.get(good.url)["files"] == 3
    assert len(ask(service, *(digest for digest, _ in parts_of(good)))) == 1


def test_parts_are_bounded_and_a_change_stays_in_its_own() -> None:
    before, after = packed_files(files()), packed_files(files(changed="d3/35.bin"))
    one, other = parts_of(before), parts_of(after)
    assert sum(size for _, size in one) == len(before.tar)
    assert 2 <= len(one) <= 60
    assert max(size for _, size in one) <= MOST_PART_BYTES
    assert len({*one} & {*other}) >= len(one) - 3
    large = packed_files({"a.bin": bytes(3 * MOST_PART_BYTES), "b": b"b"})
    assert [size for _, size in parts_of(large)][:3] == [MOST_PART_BYTES] * 3


def test_an_entry_that_is_given_in_any_pieces_has_the_same_parts() -> None:
    data = Random(0).randbytes(2 * MOST_PART_BYTES + 512)
    found: set[bytes] = set()
    for step in (512, 1 << 20, len(data)):
        reader = PartsReader()
        reader.add(data[:512])
        reader.entry("a", len(data))
        for at in range(512, len(data), step):
            reader.add(data[at : at + step])
        reader.add(bytes(1024))
        found.add(reader.finish())
    assert len(found) == 1
