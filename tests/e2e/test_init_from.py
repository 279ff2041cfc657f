"""Jobs that start from, or measure, what another job has saved, which may be deleted meanwhile."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.service import Service
from tests.trainer.test_init_from import pictures_of
from torchyard.contract.attempts.rundir import STATE_FILE
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from trainer.evaluate import evaluate

SCRIPT = """
import torchyard
run = torchyard.init()
state = run.initial()
print("starts from", state["recipe"], "at", state["step"], sorted(path.name for path in run.initial_folder.iterdir()))
"""


def submit(service: Service, **spec: Any) -> JobView:
    config = {"data": {"source": "digits"}, "training": {"epochs": 1}, **spec.pop("config", {})}
    return service.client.submit({"trainer": "image-classification", "config": config, **spec}).view


def said(service: Service, job: JobView) -> str:
    return "\n".join(event.data["text"] for event in service.client.jobs.events(job.id) if event.type == "message")


@pytest.mark.thorough
def test_a_checkpoint_is_measured_and_started_from_although_its_job_is_gone(tmp_path: Path, service: Service) -> None:
    source = submit(service, name="source", resources={"devices_per_node": 2})
    trained = service.wait(source.id, JobState.SUCCEEDED)
    assert trained.best is not None
    state = service.client.jobs.download(source.id, ref="best", to=tmp_path / STATE_FILE)
    resources = {"devices_per_node": 2}
    measured = submit(service, name="measured", mode="evaluate", init_from="source/best", resources=resources)
    paused = submit(service, name="waits", init_from=f"{source.id}/best", config={"data": few(service)})
    service.client.jobs.pause(paused.id)
    done = service.wait(measured.id, JobState.SUCCEEDED)
    expected = evaluate(state, device="cpu")
    for key in ("loss", "accuracy"):
        assert done.metrics[f"val/{key}"] == pytest.approx(expected[key], rel=1e-5)
    assert done.metrics["val/loss"] == pytest.approx(trained.best.value, rel=1e-5)
    assert done.init_from is not None
    assert (done.init_from.job_id, done.init_from.step) == (source.id, trained.best.step)
    assert done.init_from.checkpoint_id == trained.best.checkpoint_id
    assert [*service.client.jobs.checkpoints(measured.id)] == []
    (artifact,) = service.client.jobs.artifacts(measured.id)
    matrix = json.loads(service.client.jobs.download_artifact(measured.id, artifact.path, to=tmp_path).read_text())
    assert np.sum(matrix["matrix"]) == expected["samples"]
    assert {job.id for job in service.client.jobs.list(init_from=source.id)} == {measured.id, paused.id}

    service.client.jobs.delete(source.id)
    with pytest.raises(InvalidSpec, match="there is no job"):
        submit(service, init_from=f"{source.id}/best")
    service.client.jobs.resume(paused.id)
    fine = service.wait(paused.id, JobState.SUCCEEDED)
    assert "the head is new" in said(service, fine)
    assert fine.best is not None
    code = service.script("looks", SCRIPT)
    script = {"trainer": "script", "name": "looks", "config": {"code": code}, "init_from": f"{fine.id}/best"}
    looks = service.client.submit(script).view
    service.wait(looks.id, JobState.SUCCEEDED)
    (line,) = [line.text for line in service.client.jobs.logs(looks.id, rank=0)]
    assert line.startswith(f"starts from image-classification at {fine.best.step} ['confusion.json'")
    assert f"'{STATE_FILE}'" in line


def few(service: Service) -> dict[str, Any]:
    folder = service.code / "few"
    folder.mkdir()
    return {"source": f"file://{pictures_of(folder, 2, 5, 7)}"}
