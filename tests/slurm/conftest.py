"""Labs for tests: each test has a Slurm of its own, which starts in less than a second."""

from collections.abc import Generator
from pathlib import Path
import tempfile

import pytest

from tests.slurm.lab import SlurmLab
from tests.slurm.service import PoolService, running


@pytest.fixture
def lab_folder() -> Generator[Path]:
    """A folder whose path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        yield Path(folder)


@pytest.fixture
def lab(lab_folder: Path) -> Generator[SlurmLab]:
    """A Slurm of two nodes, n1 and n2."""
    with SlurmLab(lab_folder, nodes=2) as lab:
        yield lab


@pytest.fixture(scope="module")
def service() -> Generator[PoolService]:
    """A service beside a Slurm of three nodes without GPUs, for the tests of a module that do not break it."""
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        SlurmLab(Path(folder), nodes=3, gpus=0) as lab,
        running(lab) as service,
    ):
        yield service
