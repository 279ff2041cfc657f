"""What a job of a pool tries on the cluster: it is the service's user there, who may submit and cancel anything."""

from pathlib import Path

import pytest

from tests.slurm.service import PoolService
from torchyard.contract.states import JobState

pytestmark = pytest.mark.slurm

TRIES = """
import os, pathlib, subprocess, sys

configuration = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "slurm.conf")
configuration.write_text(sys.argv[1])

def tries(*argv):
    env = {**os.environ, "SLURM_CONF": str(configuration)}
    done = subprocess.run(argv, env=env, input="#!/bin/sh\\ntouch " + sys.argv[2], capture_output=True, text=True)
    print(argv[0], done.returncode, done.stderr.strip().replace("\\n", " ")[:200], flush=True)

tries("sbatch", "--partition=main", "--output=/dev/null")
tries("scancel", "--user=root")
tries("srun", "--partition=main", "hostname")
"""


def test_a_job_neither_submits_nor_cancels_jobs_of_its_cluster(service: PoolService) -> None:
    mark = service.lab.folder / "escaped"
    configuration = Path(service.lab.environment()["SLURM_CONF"]).read_text()  # jobs may not read it, but may know it
    job = service.submit_script("escapes", TRIES, nodes=1, arguments=[configuration, str(mark)])
    service.wait(job.id, JobState.SUCCEEDED)
    said = service.lines(job.id)
    assert [line.split()[0] for line in said] == ["sbatch", "scancel", "srun"]
    assert all(line.split()[1] != "0" and "unge" in line for line in said), said
    assert len([one for one in service.jobs_in_slurm() if not one["name"].startswith("ty-")]) == 0
    assert not mark.exists()
