"""The API is killed while it names what a remote worker has uploaded: nothing is lost, and nothing is sent again."""

import hashlib

import pytest

from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.blobs.uploads import OpenUploads, WorkerUploads
from store.blobs.writer import Blob
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.fixture import FailpointFixture
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.states import EndReason
from worker.settings import Settings

CONTENT = b"what a worker has uploaded"
BLOB = Blob(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
POINTS = (
    *("store.upload.before", "store.upload.after", "blob.rename", "blob.renamed"),
    *("store.store_batch.before", "store.store_batch.after"),
)


def upload(settings: Settings, claim: Claim, content: bytes) -> None:
    opened = OpenUploads()
    whose = WorkerUploads(BlobFolder(settings.blobs), claim.worker_id)
    sent = opened.begin(whose, claim.job_id, BLOB, offset=0)
    assert sent is not None
    sent.append(content)
    sent.finish()
    opened.end(sent)


@pytest.mark.parametrize("point", POINTS)
def test_a_repeated_batch_names_what_was_uploaded_before_a_kill(service: FailpointFixture, point: str) -> None:
    claim, blobs = service.running(service.submit(), service.worker()), BlobFolder(service.settings.blobs)
    upload(service.settings, claim, CONTENT)
    arguments = (service.settings, claim, BLOB)
    with started(actions.name_uploaded, *arguments, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    actions.collect(service.settings)  # what no row names
    is_committed = point == "store.store_batch.after"
    assert len(service.everything()["artifacts"]) == int(is_committed)
    assert blobs.has(BLOB.sha256, size=BLOB.size) == is_committed
    actions.name_uploaded(*arguments)
    actions.collect(service.settings)
    assert blobs.path(BLOB.sha256).read_bytes() == CONTENT
    assert service.everything()["garbage"] == []
    report = ExitReport(reason=EndReason.COMPLETED)
    with actions.opened(service.settings) as store:
        actions.WorkerStore(store, claim.worker_id, remote=True).end(claim, report)
    assert [path for path in blobs.worker_uploads.rglob("*") if path.is_file()] == []


def test_an_upload_that_was_whole_at_a_kill_is_hashed_again(service: FailpointFixture) -> None:
    claim, blobs = service.running(service.submit(), service.worker()), BlobFolder(service.settings.blobs)
    with started(upload, service.settings, claim, CONTENT, plan="blob.fsync=kill", log=service.log) as child:
        assert child.wait() == -9
    part = next(blobs.worker_uploads.rglob("*.part"))
    part.write_bytes(b"?" * BLOB.size)  # as a crash of the host may leave it
    whose = WorkerUploads(blobs, claim.worker_id)
    again = OpenUploads().begin(whose, claim.job_id, BLOB, offset=BLOB.size)
    assert again is not None
    with pytest.raises(InvalidRequest, match="sha256"):
        again.finish()
    upload(service.settings, claim, CONTENT)
    assert whose.find(claim.job_id, BLOB) is not None
