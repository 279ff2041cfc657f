"""On a machine with a GPU (`make test-gpu`): discovery, a GPU in use by another program, and the main job over NCCL."""

from collections.abc import Generator
import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests.e2e.service import Service, running, until
from torchyard.contract.job import JobState
from worker.devices.inventory import discover

GPUS = [device for device in discover(0).devices if device.kind == "cuda"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="NVML shows no GPU on this machine"),
]

HOLD = """
import sys, torch
block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def service(tmp_path: Path, empty_url: str) -> Generator[Service]:
    with running(Service(tmp_path, slots=0, database=empty_url)) as service:
        yield service


def test_a_gpu_in_use_by_another_program_is_not_offered_and_the_job_says_so(service: Service) -> None:
    uuids = ",".join(gpu.uuid for gpu in GPUS[:1])
    stranger = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": uuids},
    )
    with stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"held\n"
        job = service.client.submit(
            {"trainer": "image-classification", "resources": {"device": "cuda", "devices_per_node": len(GPUS)}}
        )

        def reason() -> str | None:
            message = service.client.get(job.id).view.status_reason.message
            return message if "not ours" in message else None

        told = until(reason, what="the reason names the stranger")
        assert f"pid {stranger.pid} (" in told
        stranger.communicate()
    assert service.wait(job.id, JobState.SUCCEEDED).devices[0].uuid == GPUS[0].uuid


def test_the_main_job_trains_over_nccl(service: Service, tmp_path: Path) -> None:
    devices = {"device": "cuda", "devices_per_node": len(GPUS)}
    job = service.client.submit({"trainer": "image-classification", "resources": devices})
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.metrics["val/accuracy"] >= 0.95
    path = service.client.download(job.id, ref="best", to=tmp_path / "best.pt")
    evaluated = subprocess.run(
        [sys.executable, "-P", "-m", "trainer.evaluate", str(path)], capture_output=True, check=True, cwd=tmp_path
    )
    best = service.client.checkpoint(job.id, "best")
    assert json.loads(evaluated.stdout)["accuracy"] == best.metrics["val/accuracy"]
