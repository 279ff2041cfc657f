"""Bundles: uploads that can be continued, whose they are, and what is refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import errno
import hashlib
import os
from pathlib import Path
from typing import Any

from backports import zstd
import pytest

from api.transfers.decoding import Decoder
from store.tables import Bundle
from tests.api.bundles import Packed, packed, packed_files, upload, upload_whole
from tests.api.service import TOKEN, ApiFixture, both_databases
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.bundles.names import FREE_BYTES, bundle_url
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

SCRIPT = {"trainer": "script", "name": "mine"}


def config(bundle: Packed) -> dict[str, Any]:
    return {"code": bundle_url(bundle.sha256), "entrypoint": "a.py"}


def partial_files(service: ApiFixture) -> list[Path]:
    return [path for path in (service.settings.blobs / "uploads").rglob("*.*") if path.is_file()]


def blob_exists(service: ApiFixture, bundle: Packed) -> bool:
    return service.app.state.services.store.blobs.path(bundle.sha256).exists()


@both_databases
def test_an_upload_is_complete_when_all_bytes_are_there(service: ApiFixture) -> None:
    bundle = packed()
    answer = upload(service.client, bundle)
    view = answer.json()
    assert answer.status_code == 201
    created = view.pop("created_at")
    size = len(bundle.tar)
    assert view == {
        "sha256": bundle.sha256,
        "size": size,
        "files": 3,
        "state": "complete",
        "received": size,
        "name": None,
    }
    assert service.get(bundle.url) == {**view, "created_at": created}
    assert service.client.head(bundle.url).status_code == 200
    again = upload(service.client, bundle)
    assert (again.status_code, again.json()["created_at"]) == (200, created)
    assert partial_files(service) == []
    content = service.client.get(f"{bundle.url}/content")
    assert (content.status_code, content.content) == (200, bundle.tar)
    assert content.headers["ETag"] == f'"{bundle.sha256}"'
    part = service.client.get(f"{bundle.url}/content", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, bundle.tar[10:20])
    (entry,) = service.get("/v1/audit", action="bundle.upload")["data"]
    assert (entry["who"], entry["object"], entry["outcome"]) == ("admin", bundle.sha256, "ok")


def test_an_upload_continues_where_it_ended(service: ApiFixture) -> None:
    bundle = packed()
    answer = upload(service.client, bundle, to=1000)
    assert (answer.status_code, answer.json()["state"], answer.json()["received"]) == (202, "partial", 1000)
    assert service.get(bundle.url)["received"] == 1000
    for offset in (0, 999, 1001, 2000):
        refused = upload(service.client, bundle, offset=offset)
        assert (refused.status_code, refused.json()["code"], refused.json()["received"]) == (409, "conflict", 1000)
    assert upload(service.client, bundle, offset=1000, to=1000).json()["received"] == 1000
    assert service.client.get(f"{bundle.url}/content").status_code == 404
    assert upload(service.client, bundle, offset=1000, to=len(bundle.tar) - 1).status_code == 202
    assert upload(service.client, bundle, offset=len(bundle.tar) - 1).status_code == 201


def test_a_compressed_body_may_begin_at_any_byte(service: ApiFixture) -> None:
    bundle = packed(size=3_000_000)
    for offset, to in ((0, 1_000_001), (1_000_001, None)):
        body = zstd.compress(bundle.tar[offset:to])
        headers = {"Content-Encoding": "zstd"}
        answer = service.client.put(bundle.url, params=bundle.params(offset=offset), content=body, headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (201, "complete")


def test_a_compressed_body_that_ends_early_keeps_what_was_decoded(service: ApiFixture) -> None:
    bundle = packed(size=900_000)
    compressor = zstd.ZstdCompressor()
    body = compressor.compress(bundle.tar[:400_000], mode=zstd.ZstdCompressor.FLUSH_BLOCK)
    answer = service.client.put(bundle.url, params=bundle.params(), content=body, headers={"Content-Encoding": "zstd"})
    assert (answer.status_code, answer.json()["received"]) == (202, 400_000)
    assert upload(service.client, bundle, offset=400_000).status_code == 201


@each_row(
    ("encoding", "body", "message"),
    [
        ("gzip", b"", "'gzip' is not possible"),
        ("zstd", b"no zstd at all", "is not a zstd stream"),
        ("zstd", zstd.compress(b"x") + b"y", "continues after the end"),
    ],
)
def test_a_body_that_cannot_be_decoded_is_refused(
    service: ApiFixture, encoding: str, body: bytes, message: str
) -> None:
    bundle = packed()
    headers = {"Content-Encoding": encoding}
    answer = service.client.put(bundle.url, params=bundle.params(), content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert message in answer.text


def test_a_large_window_is_refused(approved: Approved) -> None:
    large: dict[int, int] = {zstd.CompressionParameter.window_log: 24}
    compressor = zstd.ZstdCompressor(options=large)
    body = compressor.compress(bytes(1000)) + compressor.flush()
    with pytest.raises(InvalidRequest) as raised:
        list(Decoder("zstd").decode(body))
    assert str(raised.value) == approved("message")


def test_an_archive_bomb_is_refused_before_it_is_decoded_whole(service: ApiFixture) -> None:
    bundle = packed()
    bomb = zstd.compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    headers = {"Content-Encoding": "zstd"}
    answer = service.client.put(bundle.url, params=bundle.params(), content=bomb, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")
    assert f"more bytes arrived than `size`, which is {len(bundle.tar)}" in answer.text
    assert partial_files(service) == []
    decoded = 0
    with pytest.raises(InvalidRequest, match="compressed to less than"):
        for piece in Decoder("zstd").decode(bomb):
            decoded += len(piece)
            assert len(piece) <= 1 << 20
    assert decoded <= FREE_BYTES + 100 * len(bomb)


@pytest.mark.parametrize("begun", [pytest.param(0, marks=pytest.mark.thorough), 1000])
def test_nothing_is_left_of_a_request_with_a_small_body_for_many_bytes(service: ApiFixture, begun: int) -> None:
    bundle = packed_files({"a.bin": b"x" * 2000, "b.bin": bytes(16 << 20)})
    if begun:
        assert upload(service.client, bundle, to=begun).status_code == 202
    body = zstd.compress(bundle.tar[begun:])
    assert len(body) < 32 << 10
    headers, params = {"Content-Encoding": "zstd"}, bundle.params(offset=begun)
    answer = service.client.put(bundle.url, params=params, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert "what this request sent is removed" in answer.text
    assert [path.stat().st_size for path in partial_files(service)] == [begun] * bool(begun)
    assert upload(service.client, bundle, offset=begun, to=begun + 1).status_code == 202


@pytest.mark.parametrize("wrong", ["digest", "contents", "cut"])
def test_wrong_bytes_are_refused_and_removed(service: ApiFixture, wrong: str) -> None:
    good = packed()
    tar = {"digest": b"x" + good.tar[1:], "contents": b"no tar".ljust(2000), "cut": good.tar[:-1024]}[wrong]
    sha256 = good.sha256 if wrong == "digest" else hashlib.sha256(tar).hexdigest()
    answer = service.client.put(f"/v1/bundles/{sha256}", params={"size": len(tar)}, content=tar)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_bundle")
    expected = {"digest": "has the sha256", "contents": "is not in the format", "cut": "the tar is cut off"}[wrong]
    assert expected in answer.json()["detail"]
    assert partial_files(service) == []
    assert service.client.get(f"/v1/bundles/{sha256}").status_code == 404
    upload_whole(service.client, good)


@pytest.mark.parametrize("lie", [-1, 1, 1000])
def test_a_lying_size_does_no_harm(service: ApiFixture, lie: int) -> None:
    bundle = packed()
    answer = service.client.put(bundle.url, params={"size": len(bundle.tar) + lie}, content=bundle.tar)
    assert answer.status_code == (422 if lie < 0 else 202)
    if lie > 0:
        more = service.client.put(
            bundle.url,
            params={"size": len(bundle.tar) + lie, "offset": len(bundle.tar)},
            content=bytes(lie),
        )
        assert (more.status_code, more.json()["code"]) == (422, "invalid_bundle")
    upload_whole(service.client, bundle)


def test_another_size_begins_the_upload_anew(service: ApiFixture) -> None:
    bundle = packed()
    service.client.put(bundle.url, params={"size": 5000}, content=b"x" * 4000)
    assert upload(service.client, bundle, offset=4000).json()["received"] == 0
    upload_whole(service.client, bundle)


def test_what_is_too_large_is_refused_before_it_is_read(service: ApiFixture) -> None:
    bundle = packed()
    most = service.settings.max_bundle_bytes
    answer = service.client.put(bundle.url, params={"size": most + 1}, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert str(most) in answer.json()["detail"]
    for params in ({}, {"size": 0}, {"size": -1}, {"size": 10, "offset": -1}, {"size": "x"}):
        assert service.client.put(bundle.url, params=params, content=b"x").status_code == 422
    for name in ("x", "a" * 63, "A" * 64, "..", "%00"):
        assert service.client.put(f"/v1/bundles/{name}", params={"size": 10}, content=b"x").status_code in {404, 405}
    assert partial_files(service) == []


@quick_on_sqlite
def test_nobody_sees_whether_another_user_has_a_bundle(service: ApiFixture) -> None:
    bundle = packed()
    service.act_as("bob")
    upload_whole(service.client, bundle)
    service.submit(**SCRIPT, config=config(bundle))
    for name, role in (("alice", Role.MEMBER), ("opal", Role.OPERATOR), ("admin", Role.ADMIN)):
        service.act_as(name, role)
        for method, path in (("GET", ""), ("HEAD", ""), ("GET", "/content"), ("HEAD", "/content"), ("DELETE", "")):
            assert service.client.request(method, bundle.url + path).status_code == 404, (name, method, path)
        assert service.get("/v1/bundles")["data"] == []
        refused = service.client.post("/v1/jobs", json={**SCRIPT, "config": config(bundle)})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "config.code"
        assert upload(service.client, bundle, offset=1).json()["received"] == 0
        assert upload(service.client, bundle, to=100).status_code == 202
        assert upload(service.client, bundle, offset=100).status_code == 201
        service.submit(**SCRIPT, config=config(bundle))
    service.act_as("bob")
    assert len(service.get("/v1/bundles")["data"]) == 1


def test_a_spec_needs_complete_bundles(service: ApiFixture) -> None:
    code, data = packed(seed=1), packed(seed=2)
    spec = {**SCRIPT, "config": {**config(code), "mounts": {"digits": bundle_url(data.sha256)}}}
    upload(service.client, code, to=100)
    answer = service.client.post("/v1/jobs", json=spec)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    assert {error["field"] for error in answer.json()["errors"]} == {"config.code", "config.mounts.digits"}
    assert "upload it first" in answer.json()["errors"][0]["message"]
    upload(service.client, code, offset=100)
    upload_whole(service.client, data)
    before = last_use(service, code)
    assert service.client.post("/v1/jobs", json=spec).status_code == 201
    assert last_use(service, code) > before


@both_databases
def test_a_bundle_is_not_deleted_while_a_job_needs_it(service: ApiFixture, approved: Approved) -> None:
    bundle = packed()
    upload_whole(service.client, bundle)
    job_id = service.submit(**SCRIPT, config=config(bundle))["id"]
    refused = service.client.delete(bundle.url)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert refused.json()["detail"] == approved("detail", job_id=job_id)
    assert "received" not in refused.json()
    claim = service.start(job_id)
    assert service.client.delete(bundle.url).status_code == 409
    service.end(claim, reason=EndReason.COMPLETED)
    assert service.client.delete(bundle.url).status_code == 204
    assert service.client.delete(bundle.url).status_code == 404
    retried = service.client.post(f"/v1/jobs/{job_id}/retry")
    assert (retried.status_code, retried.json()["errors"][0]["field"]) == (422, "config.code")
    upload_whole(service.client, bundle)
    assert service.client.post(f"/v1/jobs/{job_id}/retry").status_code == 201
    assert service.client.delete(bundle.url).status_code == 409
    assert [entry["action"] for entry in service.get("/v1/audit", object=bundle.sha256)["data"]] == [
        "bundle.upload",
        "bundle.delete",
        "bundle.upload",
    ]


def test_a_job_with_a_bundle_can_be_deleted_and_leaves_the_bundle(service: ApiFixture) -> None:
    bundle = packed()
    upload_whole(service.client, bundle)
    job_id = service.submit(**SCRIPT, config=config(bundle))["id"]
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert service.client.get(f"{bundle.url}/content").content == bundle.tar


def test_an_unfinished_upload_can_be_deleted(service: ApiFixture) -> None:
    bundle = packed()
    upload(service.client, bundle, to=100)
    assert service.client.delete(bundle.url).status_code == 204
    assert service.client.get(bundle.url).status_code == 404
    assert partial_files(service) == []


@both_databases
def test_lists_have_complete_and_unfinished_bundles_newest_first(service: ApiFixture) -> None:
    bundles = [packed(seed=seed) for seed in range(5)]
    for number, bundle in enumerate(bundles):
        upload(service.client, bundle, to=100 if number % 2 else None)
    expected = [bundle.sha256 for bundle in reversed(bundles)]
    listed = service.get("/v1/bundles")["data"]
    assert [item["sha256"] for item in listed] == expected
    assert [item["state"] for item in listed] == ["complete", "partial"] * 2 + ["complete"]
    found: list[str] = []
    page: dict[str, Any] = {"has_more": True, "next": None}
    while page["has_more"]:
        page = service.get("/v1/bundles", limit=2, **({"after": page["next"]} if page["next"] else {}))
        found += [item["sha256"] for item in page["data"]]
    assert found == expected
    wrong = service.client.get("/v1/bundles", params={"after": "1"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_cursor")


@both_databases
def test_a_name_is_of_one_bundle_of_its_owner_and_keeps_it(service: ApiFixture) -> None:
    first, second = packed(seed=1), packed(seed=2)
    for bundle in (first, second):
        upload_whole(service.client, bundle)
        named = service.client.put(f"{bundle.url}/name", json={"name": "mnist"})
        assert (named.status_code, named.json()["name"]) == (200, "mnist")
    (found,) = service.get("/v1/bundles", name="mnist")["data"]
    assert found["sha256"] == second.sha256
    assert service.get(first.url)["name"] is None
    assert service.get("/v1/bundles", name="other")["data"] == []
    service.act_as("bob")
    assert service.get("/v1/bundles", name="mnist")["data"] == []
    assert service.client.put(f"{second.url}/name", json={"name": "mnist"}).status_code == 404
    upload(service.client, second, to=100)
    assert service.client.put(f"{second.url}/name", json={"name": "mnist"}).status_code == 404
    upload(service.client, second, offset=100)
    assert service.client.put(f"{second.url}/name", json={"name": "mnist"}).status_code == 200
    for wrong in ({"name": ""}, {"name": "a/b"}, {"name": "x" * 101}, {}, {"name": None}):
        assert service.client.put(f"{second.url}/name", json=wrong).status_code == 422
    service.act_as("vera", Role.VIEWER)
    assert service.client.put(f"{second.url}/name", json={"name": "mnist"}).status_code == 403


@quick_on_sqlite
def test_the_quota_counts_bundles_and_unfinished_uploads(service: ApiFixture, approved: Approved) -> None:
    first, second = packed(seed=1), packed(seed=2)
    service.act_as("bob")
    service.act_as("admin")
    limit = len(first.tar) + len(second.tar) - 1
    service.client.put("/v1/quotas/users/bob", json={"stored_bytes": limit})
    service.act_as("bob")
    upload(service.client, first, to=1)
    refused = upload(service.client, second)
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert refused.json()["detail"] == approved("detail", count=len(first.tar), limit=limit)
    assert upload(service.client, first, offset=1).status_code == 201
    assert upload(service.client, second).json()["code"] == "quota_exceeded"
    uses = {use["resource"]: use["used"] for use in service.get("/v1/quotas/users/bob")["uses"]}
    assert uses["stored_bytes"] == len(first.tar)
    service.client.delete(first.url)
    upload_whole(service.client, second)


def test_one_user_may_have_some_unfinished_uploads_only(service: ApiFixture) -> None:
    for seed in range(10):
        assert upload(service.client, packed(seed=seed), to=1).status_code == 202
    refused = upload(service.client, packed(seed=10))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "10 uploads are unfinished" in refused.json()["detail"]
    assert upload(service.client, packed(seed=3), offset=1).status_code == 201
    assert upload(service.client, packed(seed=10)).status_code == 201


@both_databases
def test_uploads_of_the_same_bundle_at_once_give_one_bundle(service: ApiFixture) -> None:
    bundle = packed(size=2_000_000)

    def send(_: int) -> None:
        """Continues until the bundle is complete, as a client does."""
        answer = upload(service.client, bundle)
        while answer.status_code not in {200, 201}:
            assert answer.status_code in {409, 429}, answer.text
            known = service.client.get(bundle.url)
            received = known.json()["received"] if known.status_code == 200 else 0
            answer = upload(service.client, bundle, offset=min(received, len(bundle.tar)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    assert service.client.get(f"{bundle.url}/content").content == bundle.tar
    assert len(service.get("/v1/audit", action="bundle.upload")["data"]) == 1
    assert partial_files(service) == []


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_keeps_what_has_arrived(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch, call: str, approved: Approved
) -> None:
    bundle = packed(size=300_000)
    real: Callable[..., int] = os.write

    def short_write(descriptor: int, data: bytes) -> int:
        if os.fstat(descriptor).st_size >= 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:1000])

    def failing_sync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr("store.blobs.partial.os.write", short_write)
        else:
            patch.setattr("store.blobs.partial.os.fdatasync", failing_sync)
        answer = upload(service.client, bundle)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]
    assert answer.json()["detail"] == approved("detail")
    received = service.get(bundle.url)["received"]
    assert received == (1000 if call == "write" else len(bundle.tar))
    assert upload(service.client, bundle, offset=received).status_code == 201


def test_a_bundle_whose_blob_was_lost_can_be_uploaded_again(service: ApiFixture) -> None:
    bundle = packed()
    upload_whole(service.client, bundle)
    service.app.state.services.store.blobs.path(bundle.sha256).unlink()
    assert service.client.get(bundle.url).status_code == 404
    upload_whole(service.client, bundle)
    assert service.client.get(f"{bundle.url}/content").content == bundle.tar


def test_an_upload_needs_the_scope_of_submissions(service: ApiFixture) -> None:
    bundle = packed()
    service.act_as("vera", Role.VIEWER)
    assert upload(service.client, bundle).status_code == 403
    assert service.client.delete(bundle.url).status_code == 403
    assert service.client.get(bundle.url).status_code == 404
    service.client.headers["Authorization"] = f"Bearer {TOKEN}x"
    assert upload(service.client, bundle).status_code == 401
    assert partial_files(service) == []


def last_use(service: ApiFixture, bundle: Packed) -> int:
    with service.database.read() as session:
        row = session.get(Bundle, ("admin", bundle.sha256))
        assert row is not None
        return row.last_used_at
