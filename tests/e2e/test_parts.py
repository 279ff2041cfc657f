"""Jobs whose ranks write their own parts of each checkpoint, on a whole service."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.service import Service, running, until
import torchyard
from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.models.classifier import Classifier
from trainer.evaluate import evaluate

pytestmark = pytest.mark.thorough


def submit(service: Service, name: str, *, devices: int, **spec: Any) -> JobView:
    config = {
        "data": {"source": "digits"},
        "training": {"epochs": 2},
        "distributed": {"strategy": "fsdp"},
        **spec.pop("config", {}),
    }
    resources = {"devices_per_node": devices}
    document = {"trainer": "image-classification", "name": name, "config": config, "resources": resources, **spec}
    return service.client.submit(document).view


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_in_parts_is_measured_downloaded_used_and_started_from(tmp_path: Path) -> None:
    service = Service(tmp_path, env={"TORCHYARD_SHARD_ABOVE": "0"})
    with running(service):
        job = submit(service, "large", devices=2)
        done = service.wait(job.id, JobState.SUCCEEDED)
        best = service.client.jobs.checkpoint(job.id, "best")
        assert INDEX_FILE in {file.path for file in best.files}
        assert best.remeasured is not None
        assert best.remeasured.metrics["val/accuracy"] == pytest.approx(best.metrics["val/accuracy"], abs=2e-3)

        folder = service.client.jobs.download(job.id, "best", to=tmp_path)
        assert folder.name == f"large-epoch-{best.epoch}"
        model = torchyard.load(folder, device="cpu")
        assert isinstance(model, Classifier)
        assert model.predict(np.zeros((8, 8), dtype=np.uint8)).label in set(model.classes)
        assert evaluate(folder, device="cpu")["accuracy"] == pytest.approx(best.metrics["val/accuracy"], abs=2e-3)

        service.client.models.add("large", job.id, "best")
        kept = service.client.models.download("large", to=tmp_path / "kept")
        assert files_of(kept) == files_of(folder)

        measured = submit(service, "measured", devices=1, mode="evaluate", init_from="large/best")
        found = service.wait(measured.id, JobState.SUCCEEDED).metrics
        assert found["val/accuracy"] == pytest.approx(best.metrics["val/accuracy"], abs=2e-3)
        started = submit(service, "started", devices=2, init_from="model:large@1")
        assert service.wait(started.id, JobState.SUCCEEDED).error is None
        assert done.error is None


def test_a_paused_job_goes_on_from_parts(tmp_path: Path) -> None:
    service = Service(tmp_path, env={"TORCHYARD_SHARD_ABOVE": "0"})
    with running(service):
        job = submit(service, "paused", devices=2, config={"training": {"epochs": 12}})
        until(
            lambda: any(service.client.jobs.checkpoints(job.id)),
            what="a checkpoint is listed",
            context=lambda: str(service.client.get(job.id).view.model_dump()),
        )
        service.client.jobs.pause(job.id)
        service.wait(job.id, JobState.PAUSED)
        saved = service.client.jobs.checkpoint(job.id, "latest")
        assert INDEX_FILE in {file.path for file in saved.files}
        service.client.jobs.resume(job.id)
        service.wait(job.id, JobState.SUCCEEDED)
        texts = [event.data["text"] for event in service.client.jobs.events(job.id) if event.type == "message"]
        assert f"resumes from checkpoint {saved.id} (step {saved.step})" in texts
        assert [item for item in texts if "not" in item] == []
