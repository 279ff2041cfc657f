"""How jobs over several nodes end: by themselves, by their owner, by Slurm, and with a node."""

from collections.abc import Generator
from datetime import timedelta
import os
from pathlib import Path
import signal
import tempfile

import pytest

from tests.slurm.lab import SlurmLab
from tests.slurm.service import PoolService, running
from torchyard.contract.states import EndReason, JobState

pytestmark = pytest.mark.slurm

WAITS = """
import os, pathlib, time
print("attempt", os.environ["TORCHYARD_ATTEMPT"], flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""
FIRST_ATTEMPT_WAITS = """
import os, time
print("attempt", os.environ["TORCHYARD_ATTEMPT"], flush=True)
while os.environ["TORCHYARD_ATTEMPT"] == "1":
    time.sleep(0.02)
"""
FAILS_ON_THE_SECOND_NODE = """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("no luck on the second node")
time.sleep(1000)
"""
HANGS = """
import os, time, torchyard
run = torchyard.init()
run.log({"train/loss": 1.0}, step=1)

def stuck_here():
    time.sleep(1000)

stuck_here()
"""
TAKES_MEMORY = """
import os, time
if os.environ["RANK"] == "1":
    taken = bytearray(3 << 30)
time.sleep(1000)
"""


def test_an_error_names_its_node_and_ends_the_ranks_of_the_other(service: PoolService) -> None:
    job = service.submit_script("fails", FAILS_ON_THE_SECOND_NODE, max_restarts=0)
    done = service.wait(job.id, JobState.FAILED)
    assert done.error is not None
    assert done.error.code == EndReason.USER_ERROR
    assert "node 1" in done.error.message
    assert "ValueError: no luck on the second node" in done.error.message
    service.until(service.idle, what="nothing is left")


def test_a_cancelled_job_leaves_nothing_in_slurm(service: PoolService) -> None:
    job = service.submit_script("cancelled", WAITS)
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    with service.client() as client:
        client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)
    service.until(service.idle, what="nothing is left")


def test_a_job_is_cancelled_while_it_waits_in_slurm(service: PoolService) -> None:
    service.lab.run("scontrol", "update", "nodename=n1,n2,n3", "state=drain", "reason=test")
    job = service.submit_script("queued", WAITS)
    service.until(lambda: service.lab.run("squeue", "--noheader").stdout, what="it is in Slurm")
    with service.client() as client:
        client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)
    service.until(service.idle, what="nothing is left")
    service.lab.run("scontrol", "update", "nodename=n1,n2,n3", "state=resume")


def test_a_killed_rank_and_a_foreign_scancel_end_one_attempt(service: PoolService) -> None:
    job = service.submit_script("killed", FIRST_ATTEMPT_WAITS, max_restarts=1)
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    os.kill(rank_of(service, job.id, 1), signal.SIGKILL)
    service.wait(job.id, JobState.SUCCEEDED)
    assert ends(service, job.id) == [EndReason.KILLED, EndReason.COMPLETED]

    job = service.submit_script("scancelled", FIRST_ATTEMPT_WAITS, max_restarts=0)
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    service.lab.run("scancel", *(stored["id"] for stored in service.jobs_in_slurm() if stored["state"] == "RUNNING"))
    service.wait(job.id, JobState.SUCCEEDED)
    assert ends(service, job.id) == [EndReason.PREEMPTED, EndReason.COMPLETED]


def test_a_hang_is_found_and_shows_the_stacks_of_both_nodes(service: PoolService) -> None:
    job = service.submit_script("hangs", HANGS, max_restarts=0, stall_timeout="5s")
    done = service.wait(job.id, JobState.FAILED)
    assert done.error is not None
    assert done.error.code == EndReason.HANG
    assert (done.error.traceback or "").count("in stuck_here") == 2


@pytest.mark.timeout(600)
def test_a_job_goes_on_with_other_nodes_after_its_node_has_died(service: PoolService) -> None:
    job = service.submit_script("moved", FIRST_ATTEMPT_WAITS, max_restarts=0)
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    before = [device.host for device in service.job(job.id).devices]
    number = service.lab.nodes.index(str(before[1])) + 1
    service.lab.kill_node(number)
    done = service.wait(job.id, JobState.SUCCEEDED, within=timedelta(minutes=4))  # Slurm may end the coordinator, too
    service.lab.start_node(number)
    service.lab.wait_for_node(number, "idle")
    assert done.attempt == 2
    assert ends(service, job.id) == [EndReason.WORKER_LOST, EndReason.COMPLETED]


def test_a_later_worker_adopts_what_runs(service: PoolService) -> None:
    job = service.submit_script("adopted", WAITS)
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    service.kill("pool")
    (service.code / "adopted/go").touch()
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.attempt == 1


@pytest.fixture(scope="module")
def limited() -> Generator[PoolService]:
    """A service beside a Slurm that limits the memory of jobs by cgroups."""
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        SlurmLab(Path(folder), nodes=2, profile="cgroup", gpus=0) as lab,
        running(lab) as service,
    ):
        yield service


def test_a_job_that_the_kernel_ends_for_its_memory_has_run_out_of_memory(limited: PoolService) -> None:
    resources = {"nodes": 2, "devices_per_node": 1, "pool": "main", "memory_gb": 1.5}
    job = limited.submit_script("greedy", TAKES_MEMORY, max_restarts=0, resources=resources)
    done = limited.wait(job.id, JobState.FAILED)
    assert done.error is not None
    assert done.error.code == EndReason.OUT_OF_MEMORY
    assert "memory_gb" in done.error.message


def rank_of(service: PoolService, job_id: str, rank: int) -> int:
    """Returns the pid of a rank of the job, on whatever node."""
    commands = [service.lab.commands(number) for number, _ in enumerate(service.lab.nodes, 1)]
    found = {pid: text for each in commands for pid, text in each.items()}
    return next(pid for pid, text in found.items() if job_id in text and f"rank {rank}" in text)


def ends(service: PoolService, job_id: str) -> list[str | None]:
    with service.client() as client:
        return [attempt.end_reason for attempt in client.jobs.attempts(job_id)]
