"""A remote worker: its token, its connection to the service, and its blobs."""

import hashlib
from io import BytesIO
from pathlib import Path

from starlette.testclient import TestClient

from store.attempts.facts import Claim
from store.blobs.facts import Put
from store.blobs.writer import Blob, BlobWriter
from store.cluster import worker_tokens
from store.output.facts import Batch, NewArtifact
from store.worker import wire
from store.worker.verbs import WorkerStore
from tests.api.service import ApiFixture
from worker.remote.blobs import RemoteBlobs


def blob_of(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def headers_of(token: str, *, boot: str = "boot-1") -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", wire.PROTOCOL_HEADER: wire.PROTOCOL, wire.BOOT_HEADER: boot}


class Box:
    """The worker for which the fixture starts jobs. `verbs` are those that the service carries out for it."""

    def __init__(self, service: ApiFixture, folder: Path) -> None:
        store = service.app.state.services.store
        with service.database.write() as session:
            self.token = worker_tokens.issue(session, service.worker_id)
            worker_tokens.use_from(session, service.worker_id, "boot-1")
        headers = headers_of(self.token)
        self.http = TestClient(service.app, headers=headers, raise_server_exceptions=False)
        self.blobs = RemoteBlobs(folder, self.http, cache_bytes=1 << 20, patience_s=0.0)
        self.verbs = WorkerStore(store, service.worker_id, remote=True)
        self.stored = store.blobs

    def written(self, content: bytes) -> BlobWriter:
        writer = self.blobs.create()
        writer.copy_from(BytesIO(content), len(content))
        writer.finish()
        return writer

    def put(self, job_id: str, *contents: bytes) -> Put:
        return self.blobs.put(job_id, [self.written(content) for content in contents])

    def append(self, claim: Claim, *contents: bytes, seq: int = 0) -> None:
        """Stores files of the attempt, whose rows name these contents."""
        new = [
            NewArtifact(f"{number}", len(content), blob_of(content).sha256) for number, content in enumerate(contents)
        ]
        self.verbs.append(claim, Batch(offsets={}, artifacts=new), seq=seq)

    def send(self, job_id: str, blob: Blob, body: bytes, *, offset: int | str = 0) -> int:
        """Sends one part as it is, and returns the status."""
        path = f"/v1/worker/blobs/{job_id}/{blob.sha256}"
        return self.http.put(path, params={"size": blob.size, "offset": offset}, content=body).status_code
