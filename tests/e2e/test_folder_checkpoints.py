"""What torch.distributed.checkpoint writes is one checkpoint: stored, fetched as a folder, and resumed from."""

from pathlib import Path
import subprocess
import sys

import pytest

from tests.e2e.service import Service
from torchyard.contract.states import JobState

pytestmark = pytest.mark.thorough

PROGRAM = """
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
resumed = os.environ.get("TORCHYARD_RESUME_FROM")
weights = distribute_tensor(torch.zeros(8) if resumed else torch.arange(8.0), mesh, [Shard(0)])
if resumed:
    dcp.load({"w": weights}, checkpoint_id=f"{resumed}/out/step=20")
    print("resumed", weights.full_tensor().tolist(), sorted(os.listdir(f"{resumed}/out")), flush=True)
else:
    for step in (10, 20):
        dcp.save({"w": weights + step}, checkpoint_id=f"out/step={step}")
dist.destroy_process_group()
"""
READS = """
import sys, torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], "whole.pt")
print(torch.load("whole.pt")["w"].tolist())
"""
SAVED = [20.0 + number for number in range(8)]
FILES = {".metadata", "__0_0.distcp", "__1_0.distcp"}


def test_the_folders_of_a_distributed_checkpoint_are_kept_fetched_and_resumed_from(
    service: Service, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    client = service.client
    job = client.run("train.py", folder=folder, checkpoints=["out/*/*"], resources={"devices_per_node": 2}, name="dcp")
    service.wait(job.id, JobState.SUCCEEDED)
    newest, older = client.jobs.checkpoints(job.id)
    for found, step in ((newest, 20), (older, 10)):
        assert found.folder is not None and found.folder.path == f"out/step={step}"
        assert {file.path for file in found.files} == {f"out/step={step}/{name}" for name in FILES}

    fetched = client.jobs.download(job.id, "latest", to=tmp_path)
    assert fetched == tmp_path / "dcp-step-0"
    done = subprocess.run(
        [sys.executable, "-c", READS, str(fetched / "out/step=20")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[-2] == str(SAVED)

    retried = client.jobs.retry(job.id)
    service.wait(retried.id, JobState.SUCCEEDED)
    lines = [line.text for line in client.jobs.logs(retried.id)]
    assert lines.count(f"resumed {SAVED} ['step=20']") == 2
