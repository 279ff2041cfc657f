"""A model keeps the weights of a recipe when their job is gone, and another job starts from them."""

import hashlib
import json
from pathlib import Path
from typing import Any

from PIL import Image
import pytest

from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.contract.errors import NotFound
from torchyard.contract.states import JobState

DIGITS: dict[str, Any] = {
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}, "training": {"epochs": 1}},
}


@pytest.mark.thorough
def test_a_job_starts_from_a_model_whose_job_is_deleted(tmp_path: Path, service: Service) -> None:
    client = service.client
    trained = client.submit({**DIGITS, "name": "first"})
    service.wait(trained.id, JobState.SUCCEEDED)
    best = client.jobs.checkpoint(trained.id, "best")
    told = _predicted(service, tmp_path / "by-job", "first/best")
    kept = client.models.add("digits", trained.id)
    assert (kept.version, kept.checkpoint_id, kept.sha256) == (1, best.id, best.sha256)
    client.jobs.delete(trained.id)
    until(lambda: not (service.data / "runs" / trained.id).exists(), what="the run directory is gone")

    measured = client.submit({**DIGITS, "name": "second", "mode": "evaluate", "init_from": "model:digits"})
    done = service.wait(measured.id, JobState.SUCCEEDED)
    assert done.spec.init_from == "model:admin/digits@1"
    for key in ("val/loss", "val/accuracy"):
        assert done.metrics[key] == pytest.approx(kept.metrics[key], rel=1e-5), key

    assert _predicted(service, tmp_path / "by-name", "model:digits@1") == told
    path = client.models.download("digits@1", to=tmp_path / "best.pt")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == kept.sha256
    client.models.remove("digits")
    blob = service.data / "blobs" / kept.sha256[:2] / kept.sha256
    until(lambda: not blob.exists(), what="the files of the model are gone")
    with pytest.raises(NotFound):
        client.models.get("digits")


def _predicted(service: Service, folder: Path, checkpoint: str) -> dict[str, Any]:
    """Returns what `torchyard predict` says of a picture, in a new folder with a cache of its own."""
    folder.mkdir()
    Image.linear_gradient("L").save(folder / "picture.png")
    own = environment(service.server["url"], service.server["token"]) | {"XDG_CACHE_HOME": str(folder)}
    done = run_in_process(["predict", checkpoint, "picture.png", "--device", "cpu", "--json"], own, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len([*folder.rglob("*.pt")]) == 1
    return json.loads(done.stdout)
