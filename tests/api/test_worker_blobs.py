"""The blobs of remote workers: they store and read as the service's folder does, and reach nothing but their own."""

import errno
from io import BytesIO
import os
from pathlib import Path
import shutil
from threading import Thread
from typing import BinaryIO

import pytest
from starlette.testclient import TestClient

from store.attempts.facts import Claim
from store.blobs import uploads
from store.blobs.facts import BlobStore
from store.blobs.uploads import WorkerUploads
from store.blobs.writer import Blob
from store.ids import new_id
from store.output.facts import Batch, NewArtifact
from store.tables import Garbage
from store.worker.verbs import WorkerStore
from tests.api.remote_box import Box, blob_of, headers_of
from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import Conflict, NotFound, StaleClaim
from torchyard.contract.states import EndReason
from worker.remote.blobs import PART_BYTES, RemoteBlobs

CONTENT = os.urandom(70_000)
BLOB = blob_of(CONTENT)


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


@pytest.fixture
def box(service: ApiFixture, claim: Claim, tmp_path: Path) -> Box:
    return Box(service, tmp_path / "box")


@pytest.mark.parametrize("driver", ["folder", "remote"])
def test_what_is_written_is_named_by_a_row_and_read_again(
    service: ApiFixture, box: Box, claim: Claim, tmp_path: Path, driver: str
) -> None:
    blobs: BlobStore = box.blobs if driver == "remote" else box.stored
    seen: list[bytes] = []
    writer = blobs.create(beside=seen.append)
    source = BytesIO(CONTENT)
    while writer.copy_from(source, 30_000):
        writer.sync()
    assert (writer.finish(), b"".join(seen)) == (BLOB, CONTENT)
    batch = Batch(offsets={}, artifacts=[NewArtifact("a", BLOB.size, BLOB.sha256)])
    if driver == "remote":
        box.blobs.put(claim.job_id, [writer])
        assert not box.stored.has(BLOB.sha256, size=BLOB.size)
        box.verbs.append(claim, batch, seq=0)
        box.verbs.append(claim, batch, seq=0)  # the answer was lost
    else:
        direct = WorkerStore(service.app.state.services.store, service.worker_id)
        direct.append(claim, batch, seq=0, put=direct.put(claim.job_id, [writer]))
    writer.discard()
    assert box.stored.has(BLOB.sha256, size=BLOB.size)
    with blobs.open(BLOB.sha256) as file:
        assert file.read() == CONTENT
        assert os.fstat(file.fileno()).st_size == BLOB.size
    assert blobs.copy_out(BLOB.sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert blobs.disk_space().total >= blobs.disk_space().free > 0
    damage(box)
    shutil.rmtree(tmp_path / "box" / "cache")
    (tmp_path / "box" / "cache").mkdir()
    assert not blobs.copy_out(BLOB.sha256, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert not blobs.copy_out("0" * 64, tmp_path / "other")
    with pytest.raises(NotFound):
        blobs.open("0" * 64)
    left = [path for path in box.stored.root.rglob("incoming/**/*") if path.is_file()]
    assert left == [*(tmp_path / "box" / "outgoing").iterdir()] == []


def damage(box: Box) -> None:
    box.stored.path(BLOB.sha256).write_bytes(bytes(BLOB.size))


def test_an_upload_goes_on_where_it_was_cut(
    service: ApiFixture, box: Box, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.remote.blobs.PART_BYTES", 20_000)
    assert box.send(claim.job_id, BLOB, CONTENT[:30_000]) == 200
    service.app.state.services.worker_uploads.close()  # as another process of the API, which hashes all of it
    box.put(claim.job_id, CONTENT)
    box.append(claim, CONTENT)
    assert box.stored.path(BLOB.sha256).read_bytes() == CONTENT
    with box.stored.open(BLOB.sha256) as file:
        assert os.fstat(file.fileno()).st_nlink == 1


@both_databases
def test_a_worker_reads_and_names_only_what_its_jobs_have(service: ApiFixture, box: Box, claim: Claim) -> None:
    service.act_as("bob")
    theirs = service.submit()["id"]
    secret = box.stored.add(BytesIO(b"another owner's"))
    other = service.start(theirs, device="cpu-1")
    service.record(other, artifacts=[NewArtifact("a", secret.size, secret.sha256)])
    service.end(other, reason=EndReason.COMPLETED)
    with pytest.raises(NotFound):
        box.blobs.open(secret.sha256)
    with pytest.raises(Conflict):
        box.append(claim, b"another owner's")
    assert box.send(theirs, BLOB, CONTENT) == 409
    with pytest.raises(StaleClaim):
        box.put(theirs, CONTENT)
    assert service.app.state.services.store.blobs.has(secret.sha256, size=secret.size)


def test_what_another_worker_or_job_uploads_cannot_be_named(
    service: ApiFixture, box: Box, claim: Claim, tmp_path: Path
) -> None:
    second = service.start(service.submit()["id"], device="cpu-1")
    box.put(second.job_id, CONTENT)
    with pytest.raises(Conflict):
        box.append(claim, CONTENT)
    whose = WorkerUploads(box.stored, new_id("wrk"))
    folder = box.stored.worker_uploads
    shutil.copytree(folder / service.worker_id, folder / whose.worker_id)
    shutil.rmtree(folder / service.worker_id)
    with pytest.raises(Conflict):
        box.append(second, CONTENT)
    assert not box.stored.has(BLOB.sha256, size=BLOB.size)
    box.put(second.job_id, CONTENT)  # nobody says that it is there already
    box.append(second, CONTENT)


@pytest.mark.parametrize("lie", ["more", "less", "other", "size of a row"])
def test_a_blob_that_lies_about_itself_is_refused_and_removed(box: Box, claim: Claim, lie: str) -> None:
    job_id, wrong = claim.job_id, Blob(BLOB.sha256, BLOB.size - 1)
    match lie:
        case "more":
            assert box.send(job_id, wrong, CONTENT) == 422
        case "less":
            assert box.send(job_id, wrong, CONTENT[:-1]) == 422
        case "other":
            assert box.send(job_id, BLOB, CONTENT[:-1]) == 200
            assert box.send(job_id, BLOB, bytes([CONTENT[-1] ^ 1]), offset=BLOB.size - 1) == 422
        case _:
            box.put(job_id, CONTENT)
            with pytest.raises(Conflict):
                box.verbs.append(claim, Batch(offsets={}, artifacts=[NewArtifact("a", 1, BLOB.sha256)]), seq=0)
            box.verbs.end(claim, ExitReport(reason=EndReason.COMPLETED))
    assert [path for path in box.stored.root.rglob(f"*{BLOB.sha256}*") if path.is_file()] == []


@pytest.mark.parametrize("offset", [1, BLOB.size, BLOB.size + 1, -1, 2**53, 2**80, "x", ""])
def test_a_part_begins_where_the_last_one_ended(box: Box, claim: Claim, offset: int | str) -> None:
    status = box.send(claim.job_id, BLOB, b"x", offset=offset)
    assert status == (409 if isinstance(offset, int) and 0 < offset < 2**53 else 422)
    assert box.send(claim.job_id, BLOB, CONTENT) == 200
    assert box.send(claim.job_id, BLOB, CONTENT) == 409


@each_row("sha256", ["..%2f..", "%2e%2e%2f" * 8, BLOB.sha256.upper(), "0" * 63, "x" * 64])
def test_a_digest_is_no_path(box: Box, claim: Claim, sha256: str) -> None:
    for answer in (
        box.http.put(f"/v1/worker/blobs/{claim.job_id}/{sha256}", params={"size": 1}, content=b"x"),
        box.http.put(f"/v1/worker/blobs/..%2f{claim.job_id}/{BLOB.sha256}", params={"size": 1}, content=b"x"),
        box.http.get(f"/v1/worker/blobs/{sha256}"),
    ):
        assert answer.status_code in {404, 405}, answer.text
    assert not box.stored.worker_uploads.exists()


def test_of_two_writers_of_one_upload_the_bytes_are_those_of_one(box: Box, claim: Claim) -> None:
    own = WorkerUploads(box.stored, box.verbs.worker_id)
    with_first, with_second = uploads.OpenUploads(), uploads.OpenUploads()  # of two processes of the API
    first = with_first.begin(own, claim.job_id, BLOB, offset=0)
    assert first is not None
    first.append(CONTENT[:1000])
    with_first.end(first)
    second = with_second.begin(own, claim.job_id, BLOB, offset=1000)
    assert second is not None
    with pytest.raises(Conflict):
        with_second.begin(own, claim.job_id, BLOB, offset=0)
    second.append(b"?" * (BLOB.size - 1000))
    with pytest.raises(Conflict):
        first.append(CONTENT[1000:])
    with pytest.raises(Exception, match="sha256"):
        second.finish()
    with_second.end(second)
    evil = with_second.begin(own, claim.job_id, BLOB, offset=0)
    assert evil is not None
    evil.append(b"?" * 1000)
    with_second.end(evil)
    again = with_first.begin(own, claim.job_id, BLOB, offset=1000)  # it has hashed other bytes
    assert again is not None
    with pytest.raises(Exception, match=r"sha256|continue"):
        again.append(CONTENT[1000:])
        again.finish()
    assert own.find(claim.job_id, BLOB) is None


def test_a_full_disk_of_the_service_is_said_and_passes(box: Box, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(uploads, "_FREE_BYTES", 1 << 60)
        assert box.send(claim.job_id, BLOB, CONTENT) == 503
        with pytest.raises(OSError, match="full"):
            box.put(claim.job_id, CONTENT)
    with monkeypatch.context() as many:
        many.setattr(uploads, "MOST_FILES", 0)
        with pytest.raises(OSError, match="at most"):
            box.put(claim.job_id, CONTENT)
    box.put(claim.job_id, CONTENT)


def test_a_full_disk_of_the_worker_leaves_what_arrived(
    box: Box, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.put(claim.job_id, CONTENT)
    box.append(claim, CONTENT)

    def full(file: BinaryIO, data: bytes) -> None:
        file.write(data[:100])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr("worker.remote.blobs.write_all", full)
        box.blobs.copy_out(BLOB.sha256, tmp_path / "copy")
    assert (tmp_path / "box" / "cache" / f"{BLOB.sha256}.part").stat().st_size == 100
    assert box.blobs.copy_out(BLOB.sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_uploads_go_with_their_attempt_or_after_a_day(service: ApiFixture, box: Box, claim: Claim) -> None:
    second = service.start(service.submit()["id"], device="cpu-1")
    box.put(claim.job_id, CONTENT)
    box.put(second.job_id, CONTENT, b"new")
    box.verbs.end(claim, ExitReport(reason=EndReason.COMPLETED))
    assert box.send(claim.job_id, BLOB, CONTENT) == 409
    whole = box.stored.worker_uploads / service.worker_id
    assert [path.name for path in whole.iterdir()] == [second.job_id]
    old = next(whole.rglob(f"{BLOB.sha256}*"))
    os.utime(old, (1, 1))
    uploads.remove_abandoned(box.stored)
    box.stored.remove_abandoned()
    assert [path.name for path in whole.rglob("*.*")] == [f"{blob_of(b'new').sha256}.3"]


def test_a_token_of_a_user_opens_no_route_of_a_worker_nor_the_reverse(service: ApiFixture, box: Box) -> None:
    assert service.client.get(f"/v1/worker/blobs/{BLOB.sha256}").status_code == 401
    assert box.http.get("/v1/me").status_code == 401
    assert box.http.get(f"/v1/worker/blobs/{BLOB.sha256}").status_code == 404


def test_another_host_with_the_token_uploads_and_reads_nothing(box: Box, claim: Claim) -> None:
    box.put(claim.job_id, CONTENT)
    box.append(claim, CONTENT)
    other = TestClient(box.http.app, headers=headers_of(box.token, boot="boot-2"))
    for answer in (
        other.get(f"/v1/worker/blobs/{BLOB.sha256}"),
        other.put(f"/v1/worker/blobs/{claim.job_id}/{BLOB.sha256}", params={"size": BLOB.size}, content=CONTENT),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text
        assert "another host" in answer.json()["detail"]


def test_threads_that_want_one_blob_fetch_it_once_and_the_cache_is_bounded(
    box: Box, claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [bytes([number]) * 600_000 for number in range(3)]
    box.put(claim.job_id, CONTENT, *large)
    box.append(claim, CONTENT, *large)
    fetched: list[str] = []
    receive = RemoteBlobs._receive  # pyright: ignore[reportPrivateUsage]

    def counted(self: RemoteBlobs, sha256: str, *rest: object) -> None:
        fetched.append(sha256)
        receive(self, sha256, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteBlobs, "_receive", counted)
    threads = [
        Thread(target=box.blobs.copy_out, args=(BLOB.sha256, tmp_path / f"copy-{number}")) for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(tmp_path / f"copy-{number}").read_bytes() for number in range(4)} == {CONTENT}
    assert fetched == [BLOB.sha256]
    cached = tmp_path / "box" / "cache" / BLOB.sha256
    cached.write_bytes(CONTENT[:-1])  # a damaged file is fetched again
    with box.blobs.open(BLOB.sha256) as reading:
        assert fetched == [BLOB.sha256] * 2
        for content in large:
            assert box.blobs.copy_out(blob_of(content).sha256, tmp_path / blob_of(content).sha256)
        assert sum(path.stat().st_size for path in cached.parent.iterdir()) <= 1 << 20
        assert not cached.exists()
        assert reading.read() == CONTENT


def test_nothing_is_left_where_a_batch_was_refused(service: ApiFixture, box: Box, claim: Claim) -> None:
    box.put(claim.job_id, CONTENT)
    with pytest.raises(StaleClaim):
        box.append(claim, CONTENT, seq=5)
    with service.database.read() as session:
        assert session.get(Garbage, BLOB.sha256) is not None  # a collector removes it
    box.append(claim, CONTENT)  # nothing is uploaded again
    assert box.stored.has(BLOB.sha256, size=BLOB.size)
    assert PART_BYTES >= 1 << 20
