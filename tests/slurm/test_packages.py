"""A job over two nodes with packages of its own, which the pool's worker installs once for both."""

from pathlib import Path

import pytest

from tests.slurm.lab import SlurmLab
from tests.slurm.service import running
from tests.worker.packages.index import serving
from torchyard.contract.states import JobState

pytestmark = pytest.mark.slurm

USES = """
import os, pathlib, socket
import alpha
print("alpha", alpha.version, "on", socket.gethostname(), flush=True)
try:
    pathlib.Path(alpha.__file__).write_text("poison")
    print("changed it", flush=True)
except OSError:
    pass
"""


def test_both_nodes_use_the_packages_that_were_installed_once(lab_folder: Path) -> None:
    with serving() as index, SlurmLab(lab_folder, nodes=2, gpus=0) as lab:
        index.add("alpha")
        with running(lab, env={"TORCHYARD_PACKAGE_INDEX": index.url}) as service:
            (service.code / "own").mkdir()
            (service.code / "own/requirements.txt").write_text("alpha\n")
            job = service.submit_script("own", USES, config={"requirements": "requirements.txt"})
            service.wait(job.id, JobState.SUCCEEDED)
            said = service.lines(job.id)
            assert sorted(line.rpartition(" ")[0] for line in said) == ["alpha 1.0 on"] * 2, service.said()
            assert len({line.rpartition(" ")[2] for line in said}) == 2
            assert index.downloads() == ["alpha-1.0-py3-none-any.whl"]
