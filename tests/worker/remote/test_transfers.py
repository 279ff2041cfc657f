"""Transfers of blobs over real connections, which end at any byte."""

from collections.abc import Generator
import hashlib
from io import BytesIO
from pathlib import Path
from random import Random

import httpx2
import pytest

from store.blobs.folder import BlobFolder
from store.cluster import worker_tokens
from store.db.database import Database
from store.output.facts import Batch, NewArtifact
from store.service_identity import service_id
from store.worker.verbs import WorkerStore
from tests.api.remote_box import headers_of
from tests.api.serving import api_thread
from tests.cutting import Cut, cutting_proxy, random_cuts
from tests.store.fixture import StoreFixture, store_on
from worker.remote.blobs import Away, RemoteBlobs

CONTENT = Random(60).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(tmp_path: Path, database: Database, redis_url: str) -> Generator[str]:
    service_id(database)
    with api_thread(tmp_path / "service", str(database.engine.url), redis_url) as url:
        yield url


def test_a_blob_goes_there_and_back_over_connections_that_break(
    url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.remote.blobs.PART_BYTES", 1 << 20)
    monkeypatch.setattr("worker.remote.blobs._FIRST_PAUSE_S", 0.001)
    db, cuts = StoreFixture(database), random_cuts(Random(7), 12, most=1_500_000)
    claim = db.running(db.submit(), db.worker())
    token = db.write(lambda session: worker_tokens.issue(session, claim.worker_id))
    db.write(lambda session: worker_tokens.use_from(session, claim.worker_id, "boot-1"))
    with cutting_proxy(url, cuts) as proxy:
        http = httpx2.Client(base_url=proxy, headers=headers_of(token), trust_env=False)
        blobs = RemoteBlobs(tmp_path / "box", http, cache_bytes=1 << 30)
        writer = blobs.create()
        (tmp_path / "source").write_bytes(CONTENT)
        with (tmp_path / "source").open("rb") as source:
            writer.copy_from(source, len(CONTENT))
        writer.finish()
        blobs.put(claim.job_id, [writer])
        named = Batch(offsets={}, artifacts=[NewArtifact("a", len(CONTENT), SHA256)])
        folder = BlobFolder(tmp_path / "service" / "blobs")
        WorkerStore(store_on(database, blobs=folder), claim.worker_id, remote=True).append(claim, named, seq=0)
        cuts += random_cuts(Random(8), 12, most=1_500_000)
        assert blobs.copy_out(SHA256, tmp_path / "copy")
        http.close()
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_after_a_cut_it_is_asked_what_has_arrived_before_a_part_is_sent_again(
    url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.remote.blobs._FIRST_PAUSE_S", 0.001)
    db, lengths = StoreFixture(database), list[int]()

    def note(request: httpx2.Request) -> None:
        lengths.append(int(request.headers["Content-Length"]))

    claim = db.running(db.submit(), db.worker())
    token = db.write(lambda session: worker_tokens.issue(session, claim.worker_id))
    db.write(lambda session: worker_tokens.use_from(session, claim.worker_id, "boot-1"))
    with (
        cutting_proxy(url, [Cut(to_server=1_000_000)]) as proxy,
        httpx2.Client(
            base_url=proxy,
            headers=headers_of(token),
            trust_env=False,
            event_hooks={"request": [note]},
        ) as http,
    ):
        blobs = RemoteBlobs(tmp_path / "box", http, cache_bytes=1 << 30)
        writer = blobs.create()
        writer.copy_from(BytesIO(CONTENT), len(CONTENT))
        writer.finish()
        blobs.put(claim.job_id, [writer])
    assert lengths[:2] == [len(CONTENT), 0]


def test_a_transfer_is_given_up_when_the_daemon_leaves(tmp_path: Path) -> None:
    with httpx2.Client(base_url="http://127.0.0.1:9", trust_env=False) as http:
        blobs = RemoteBlobs(tmp_path, http, cache_bytes=1)
        blobs.close()
        with pytest.raises(Away):
            blobs.open(SHA256)
        writer = blobs.create()
        writer.finish()
        with pytest.raises(Away):
            blobs.put("job_1", [writer])
