"""From a submission to the first training step, beside bare torchrun of the same script: `python -m bench.start`.

Each step of the way is dated by what it leaves: the answer, the event of the claim, the files of the run directory, and
what the script itself writes after its first optimizer step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import subprocess
import sys
import time

from bench import table
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row
from torchyard.client import Client
from torchyard.rundir import RunDir
from torchyard.views import JobView

REPEATS = 5
PROCESSES = 2
_PEER = "torchrun"
_SCRIPT = """
import os, pathlib, time
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
if distributed.get_rank() == 0:
    told = pathlib.Path(__file__).with_name("first-step")
    told.with_suffix(".new").write_text(str(time.time()))
    told.with_suffix(".new").rename(told)
distributed.barrier()
distributed.destroy_process_group()
"""


@dataclass(frozen=True)
class Start:
    """When each step of one start was reached, in seconds since the epoch."""

    submitted: float
    accepted: float
    claimed: float
    """By the database's clock, which may be one of milliseconds."""
    prepared: float
    supervised: float
    launched: float
    """The supervisor starts torchrun."""
    stepped: float


def measure() -> Iterator[Row]:
    ours: list[Start] = []
    theirs: list[float] = []
    with scratch() as folder, up(folder, slots=PROCESSES) as service, service.client() as client:
        wait_for(client.workers, "the worker, which may come after the API")
        for number in range(REPEATS):
            ours.append(_through_service(service, client, folder / f"code-{number}"))
            theirs.append(_bare(folder / f"bare-{number}"))
    yield Row(
        "POST to torchrun's start",
        "s",
        [start.launched - start.submitted for start in ours],
        peer="none: torchrun is what we start",
        at_most=0.5,
    )
    yield Row("– POST to its answer", "s", [start.accepted - start.submitted for start in ours])
    yield Row("– to the worker's claim", "s", [start.claimed - start.accepted for start in ours])
    yield Row("– to the prepared run directory", "s", [start.prepared - start.claimed for start in ours])
    yield Row("– to its supervisor", "s", [start.supervised - start.prepared for start in ours])
    yield Row("– to torchrun's start", "s", [start.launched - start.supervised for start in ours])
    yield Row(
        "torchrun's start to the first step, 2 ranks",
        "s",
        [start.stepped - start.launched for start in ours],
        peer=_PEER,
        theirs=theirs,
    )
    yield Row(
        "POST to the first step, 2 ranks",
        "s",
        [start.stepped - start.submitted for start in ours],
        peer=_PEER,
        theirs=theirs,
    )


def _through_service(service: Service, client: Client, code: Path) -> Start:
    spec = script(code, _SCRIPT, processes=PROCESSES)
    submitted = time.time()
    job_id = client.submit(spec).id
    accepted = time.time()
    stepped = _first_step(code)
    run = RunDir(service.data / "runs" / job_id / "1")
    job = wait_for(lambda: _ended(client, job_id), "the end of the job", pause=0.1)
    assert job.started_at is not None
    return Start(
        submitted=submitted,
        accepted=accepted,
        claimed=job.started_at.timestamp(),
        prepared=run.launch.stat().st_mtime,
        supervised=run.supervisor.stat().st_mtime,
        launched=run.log("launcher", "stdout").stat().st_mtime,
        stepped=stepped,
    )


def _ended(client: Client, job_id: str) -> JobView | None:
    job = client.get(job_id)
    return job if job.state.terminal else None


def _bare(code: Path) -> float:
    """Seconds from torchrun's start to the first step."""
    code.mkdir()
    script = code / "train.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}", script]
    began = time.time()
    with (code / "log").open("wb") as log:
        subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=log, stderr=subprocess.STDOUT
        )
    return _first_step(code) - began


def _first_step(code: Path) -> float:
    told = code / "first-step"
    return float(wait_for(lambda: told.exists() and told.read_text(), "the first step"))


if __name__ == "__main__":
    table.main(measure)
