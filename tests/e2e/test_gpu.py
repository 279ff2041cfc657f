"""On a machine with a GPU (`make test-gpu`): discovery, a GPU in use by another program, and the main job over NCCL."""

from collections.abc import Generator
from dataclasses import replace
import json
import os
from pathlib import Path
import re
import subprocess
import sys

import pytest

from tests.e2e.service import Service, running, until
from tests.processes import kill_attempt
from tests.worker.attempt import Attempt
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.states import EndReason, JobState
from torchyard.host.recordfiles import read_record
from worker.devices.inventory import discover
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers.torchrun import TorchrunLauncher

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

SLEEP = """
import time, torch, torchyard
run = torchyard.init()
weights = torch.ones(1024, device="cuda")
while not run.should_stop():
    time.sleep(0.1)
run.save_checkpoint({"weights": weights.cpu()}, step=1)
print("saved", flush=True)
"""


SHARED_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
REFUSED = re.compile("Duplicate GPU detected|Multiple Ranks are using the same GPU")


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
    path = service.client.jobs.download(job.id, ref="best", to=tmp_path / "best.pt")
    evaluated = subprocess.run(
        [sys.executable, "-P", "-m", "trainer.evaluate", str(path)], capture_output=True, check=True, cwd=tmp_path
    )
    best = service.client.jobs.checkpoint(job.id, "best")
    assert json.loads(evaluated.stdout)["accuracy"] == best.metrics["val/accuracy"]


def test_two_ranks_on_one_gpu_train_over_nccl_in_the_sandbox(tmp_path: Path) -> None:
    """What no run with one rank shows: NCCL connects two processes of a sandbox, and each finds what the other maps."""
    attempt = Attempt.create(tmp_path)
    devices = (GPUS[0].uuid,) * 2
    spec = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}
    plan = attempt.plan_of_spec(spec, devices=devices)
    launch = launch_plan(
        plan,
        run=attempt.run,
        launcher=TorchrunLauncher(),
        slots=2,
        devices=devices,
        confinement=attempt.confinement,
    )
    try:
        attempt.start_plan(replace(launch, env={**launch.env, **SHARED_GPU, "CUDA_VISIBLE_DEVICES": GPUS[0].uuid}))
        report = attempt.report()
        said = "".join(attempt.log(f"rank-{rank}", "stderr") for rank in range(2))
        if REFUSED.search(said + report.message):
            pytest.skip("this NCCL does not let two ranks share a GPU")
        assert report.reason is EndReason.COMPLETED, f"{report}: {said}"
        saved = [read_record(path, Manifest) for path in sorted(attempt.run.checkpoints.glob("*/manifest.json"))]
        assert max(manifest.metrics.get("val/accuracy", 0.0) for manifest in saved if manifest is not None) >= 0.95
    finally:
        assert kill_attempt(attempt.job_id, attempt.number) == []


def test_a_job_that_sleeps_on_its_gpu_is_warned_and_then_stopped(service: Service) -> None:
    job = service.submit_script("sleeps", SLEEP, idle_timeout="1m", resources={"device": "cuda"})

    def warned() -> list[str]:
        events = [event.data for event in service.client.jobs.events(job.id) if event.type == "message"]
        return [data["text"] for data in events if data.get("cause") == "idle"]

    (text,) = until(lambda: warned() or None, what="it is warned")
    assert text.startswith("its GPU was used below 5% for ")
    assert service.client.get(job.id).state is JobState.RUNNING
    failed = service.wait(job.id, JobState.FAILED)
    assert failed.error is not None
    assert (failed.error.code, failed.attempt) == (EndReason.IDLE_TIMEOUT, 1)
    assert failed.status_reason.message == "its GPU was used below 5% for 1m (idle_timeout)"
    assert [checkpoint.step for checkpoint in service.client.jobs.checkpoints(job.id)] == [1]
    assert len(warned()) == 1
