"""A program that knows nothing of the service has curves: those that it writes for wandb and for MLflow."""

import math
from pathlib import Path

from tests.e2e.service import Service, until
from tests.worker.curvefiles import history, wandb_log
from torchyard.contract.states import JobState

PROGRAM = """
import pathlib, shutil, time
run = pathlib.Path("wandb/offline-run-20260101_120000-abcdefgh")
run.mkdir(parents=True)
shutil.copy("written.bin", run / "run-abcdefgh.wandb")  # as `wandb.log` with WANDB_MODE=offline leaves it
metrics = pathlib.Path("mlruns/0/" + "0" * 32 + "/metrics")
metrics.mkdir(parents=True)
(metrics.parent / "meta.yaml").write_text("run_id: x\\n")
(metrics / "accuracy").write_text("".join(f"{1700000000000 + step} {step / 4} {step}\\n" for step in range(3)))
print("written", flush=True)
"""


def test_what_wandb_and_mlflow_write_become_curves(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "written.bin").write_bytes(wandb_log(*(history(step, {"loss": 1 / (step + 1)}) for step in range(3))))
    job = service.client.run("train.py", folder=folder, max_restarts=0)
    service.wait(job.id, JobState.SUCCEEDED)
    until(lambda: len(job.metrics()) == 2, what="both curves")
    curves = {series.key: list(zip(series.steps, series.values, strict=True)) for series in job.metrics().values()}
    assert curves["accuracy"] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert [step for step, _ in curves["loss"]] == [0, 1, 2]
    assert all(math.isclose(value, 1 / (step + 1)) for step, value in curves["loss"])
