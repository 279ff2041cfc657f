"""A failed job is retried from its checkpoint, and then deleted with everything that only it refers to."""

from pathlib import Path

import pytest

from tests.e2e.service import Service, until
from torchyard.contract.errors import NotFound
from torchyard.contract.states import JobState

SCRIPT = """
import torch, torchyard
run = torchyard.init()
state = run.resume()
start = 0 if state is None else int(state["step"])
for step in range(start + 1, 5):
    run.save_checkpoint({"step": step, "of": "flaky"}, step=step, metrics={"val/loss": 1.0 / step})
    if step == 2:
        raise RuntimeError("a bug, before the code was mended")
print("resumed at", start)
"""


def test_a_failed_job_is_retried_from_its_newest_checkpoint_and_deleted(tmp_path: Path, service: Service) -> None:
    failed = service.submit_script("flaky", SCRIPT, max_restarts=0)
    service.wait(failed.id, JobState.FAILED)
    retried = service.client.jobs.retry(failed.id)
    assert retried.view.retry_of == failed.id
    done = service.wait(retried.id, JobState.SUCCEEDED)
    assert done.attempt == 1
    assert "resumed at 2" in [line.text for line in service.client.jobs.logs(retried.id, rank=0)]
    messages = [event.data["text"] for event in service.client.jobs.events(retried.id) if event.type == "message"]
    assert messages[0] == f"continues job {failed.id} from step 2"
    steps = [(item.step, item.attempt) for item in service.client.jobs.checkpoints(retried.id)]
    assert steps == [(4, 1), (3, 1), (2, 0)]

    run, blobs = service.data / "runs" / failed.id, service.data / "blobs"
    stored = {item.step: item.sha256 for item in service.client.jobs.checkpoints(failed.id)}
    assert run.exists()
    service.client.jobs.delete(failed.id)
    until(lambda: not run.exists(), what="the run directory is gone")
    until(lambda: not (blobs / stored[1][:2] / stored[1]).exists(), what="the first checkpoint is gone")
    shared = service.client.jobs.download(retried.id, ref="step-2", to=tmp_path / "two.pt")
    assert shared.stat().st_size > 0
    assert (blobs / stored[2][:2] / stored[2]).exists()
    with pytest.raises(NotFound):
        service.client.get(failed.id)
