"""The commands of docs/operating/slurm.md, as they stand there but for the port, on a Slurm of two nodes."""

from pathlib import Path
import re

import pytest

from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.servers import free_port
from tests.slurm.lab import SlurmLab

pytestmark = pytest.mark.slurm

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "slurm.md"


def test_the_first_hour_with_a_slurm_goes_as_documented(lab_folder: Path) -> None:
    port = str(free_port())
    up, *steps = [block.replace("8000", port) for block in blocks(DOCUMENT.read_text(), "sh")]
    folder = lab_folder / "hour"
    folder.mkdir()
    with SlurmLab(lab_folder, nodes=2, gpus=0) as lab:
        environment = {**environment_in(folder), **lab.environment()}
        with running_by(up, folder, environment, warm=False):
            said = run_blocks(steps, folder, environment)
    assert {"rank 0 | rank 0 is on n1", "rank 1 | rank 1 is on n2"} <= set(said.splitlines())
    assert re.search(r"^\d+ COMPLETED ty-", said, re.MULTILINE)
    assert "waits in Slurm" in said
