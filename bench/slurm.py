"""Jobs over two nodes of a Slurm beside the same script under bare sbatch and torchrun: `python -m bench.slurm`.

Needs root and Debian's packages of Slurm: the nodes are namespaces of this machine (tests/slurm/lab.py). Both take
turns on the same nodes. Not part of `python -m bench`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
import sys
import tempfile
import time

from bench import table
from bench.table import Row
from tests.slurm.lab import SlurmLab, missing
from tests.slurm.service import PoolService, running

REPEATS = 5
NODES = 2
_PEER = "sbatch and torchrun"
_SCRIPT = """
import os, pathlib, time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def mark(name):
    if distributed.get_rank() == 0:
        path = pathlib.Path(os.environ.get("TORCHYARD_RUN_DIR") or os.path.dirname(__file__), name)
        path.with_suffix(".new").write_text(str(time.time()))
        path.with_suffix(".new").rename(path)

for step in range(500):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if step == 0:
        mark("first-step")
mark("last-step")
distributed.destroy_process_group()
"""
_BARE = """\
#!/bin/bash
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
master=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --export=ALL {python} -m torch.distributed.run --nnodes={nodes} --nproc-per-node=1 \\
    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$master:29500" {folder}/train.py
date +%s.%N > {folder}/over
"""


@dataclass(frozen=True)
class Times:
    """Seconds from the submission."""

    first_step: float
    last_step: float
    over: float
    """When the owner knows of our job's end, or when the batch script ends."""


def measure() -> Iterator[Row]:
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    ours: list[Times] = []
    bare: list[Times] = []
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        SlurmLab(Path(folder), nodes=NODES, gpus=0) as lab,
        running(lab) as service,
    ):
        _by_torchyard(service, "first")  # compiles what both import
        for number in range(REPEATS):
            ours.append(_by_torchyard(service, f"ours-{number}"))
            bare.append(_by_sbatch(service, f"bare-{number}"))
    where = f"{NODES} nodes with 1 rank each"
    for what, of_ours, of_bare in (
        ("the first step", [each.first_step for each in ours], [each.first_step for each in bare]),
        ("the last step", [each.last_step for each in ours], [each.last_step for each in bare]),
        ("the end of the job", [each.over for each in ours], [each.over for each in bare]),
    ):
        yield Row(f"submission to {what}, {where}", "s", of_ours, peer=_PEER, theirs=of_bare, ratio_at_most=1.15)


def _by_torchyard(service: PoolService, name: str) -> Times:
    began = time.time()
    job = service.submit_script(name, _SCRIPT, nodes=NODES, env={"OMP_NUM_THREADS": "1"})
    service.wait(job.id)
    over = time.time()
    return _times(service.run_folder(job.id) / "job", began=began, over=over)


def _by_sbatch(service: PoolService, name: str) -> Times:
    folder = service.code / name
    folder.mkdir()
    (folder / "train.py").write_text(_SCRIPT)
    script = folder / "batch.sh"
    script.write_text(_BARE.format(python=sys.executable, nodes=NODES, folder=folder))
    options = (f"--nodes={NODES}", "--ntasks-per-node=1", f"--output={folder}/log")
    began = time.time()
    service.lab.run("sbatch", *options, str(script))
    service.until(lambda: (folder / "over").exists() and (folder / "over").read_text(), what="the batch script's end")
    return _times(folder, began=began, over=float((folder / "over").read_text()))


def _times(folder: Path, *, began: float, over: float) -> Times:
    first, last = (float((folder / name).read_text()) for name in ("first-step", "last-step"))
    return Times(first - began, last - began, over - began)


if __name__ == "__main__":
    table.main(measure)
