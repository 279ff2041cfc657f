"""Publishes what a remote worker has uploaded, together with the rows that name it."""

from collections.abc import Collection, Generator
from contextlib import contextmanager

from store.attempts import keeping
from store.blobs import garbage, named, puts
from store.blobs.facts import Put
from store.blobs.uploads import WorkerUploads
from store.blobs.writer import Blob
from store.output.facts import Batch
from store.store import Store
from torchyard.contract.errors import Conflict


@contextmanager
def published(store: Store, worker_id: str, job_id: str, blobs: Collection[Blob]) -> Generator[Put]:
    """Gives uploads of the worker for the job their names. The block commits the rows that name these blobs.

    Raises Conflict for a blob that the worker has not uploaded for the job, and that the job does not name; StaleClaim
    if the worker does nothing for the job; and OSError.
    """
    if not blobs:
        yield Put()
        return
    uploads, digests = WorkerUploads(store.blobs, worker_id), {blob.sha256 for blob in blobs}
    found = {blob: file for blob in blobs if (file := uploads.find(job_id, blob)) is not None}
    others = {blob for blob in blobs if blob not in found}
    with store.write("upload") as session:
        keeping.require_job(session, worker_id, job_id)
        there = named.find_named(session, [job_id], {blob.sha256 for blob in others})
        if not others <= {Blob(sha256, size) for sha256, size in there.items()}:
            raise Conflict("some of these files were not uploaded for this job, or have other sizes: store them again")
        # They are garbage until rows name them: if this ends in between, a collector removes them.
        garbage.add_blobs(session, digests)
        put = puts.begin(session, digests)
    store.blobs.publish_links((file, blob.sha256) for blob, file in found.items())
    yield put
    uploads.remove(job_id, found)


def blobs_of(batch: Batch) -> set[Blob]:
    """Returns all blobs that a batch names, with the sizes that it says."""
    files = [file for checkpoint in batch.checkpoints for file in checkpoint.files]
    pictures = [picture for item in batch.media for picture in item.pictures]
    return {Blob(each.sha256, each.size) for each in (*files, *batch.artifacts, *pictures)}
