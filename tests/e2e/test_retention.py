"""A real run leaves exactly the checkpoints that its policy keeps: listed, downloadable, and on disk."""

import hashlib
from pathlib import Path

import pytest

from tests.e2e.service import Service, until
from torchyard.contract.errors import NotFound
from torchyard.contract.states import JobState

SPEC = {
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}, "training": {"epochs": 5}, "lr_scheduler": {"name": "constant"}},
    # The rate is the same in every epoch, and of equals the earliest is the best: the first.
    "checkpoint": {"keep_last": 2, "monitor": "train/lr"},
}
LEAST = 10_000
"""Bytes of a file of weights, at least."""
KEPT = ["epoch-5", "epoch-4", "epoch-1"]


@pytest.mark.thorough
def test_five_epochs_leave_the_last_two_and_the_best(tmp_path: Path, service: Service) -> None:
    others = blobs(service)
    done = service.wait(service.client.submit(SPEC).id, JobState.SUCCEEDED)
    listed = list(service.client.jobs.checkpoints(done.id))
    assert [f"epoch-{item.epoch}" for item in listed] == KEPT
    assert ["latest" in item.aliases for item in listed] == [True, False, False]
    assert ["best" in item.aliases for item in listed] == [False, False, True]
    assert done.best is not None
    assert done.best.checkpoint_id == listed[-1].id
    for item in listed:
        path = service.client.jobs.download(done.id, ref=f"epoch-{item.epoch}", to=tmp_path / item.id)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == item.sha256
    with pytest.raises(NotFound, match="no longer"):
        service.client.jobs.download(done.id, ref="epoch-2", to=tmp_path)
    saved = [event.data["epoch"] for event in service.client.jobs.events(done.id) if event.type == "checkpoint"]
    assert saved == [1, 2, 3, 4, 5]
    assert done.card is not None
    assert done.card["parameters"] == done.card["trainable_parameters"]

    copies = service.data / "runs" / done.id / "1" / "job" / "checkpoints"
    assert {path.name for path in copies.iterdir()} == {"epoch-0001", "epoch-0004", "epoch-0005"}
    kept = {file.sha256 for item in listed for file in item.files if file.size >= LEAST}
    until(lambda: blobs(service) - others == kept - others, what="the other bytes are gone")


def blobs(service: Service) -> set[str]:
    """Returns the digests of the stored files that are no pictures of mistakes, which the job keeps."""
    return {path.name for path in (service.data / "blobs").glob("??/*") if path.stat().st_size >= LEAST}
