"""Labs for tests: each test has a Slurm of its own, which starts in less than a second."""

from collections.abc import Generator
from pathlib import Path
import tempfile

import pytest

from tests.slurm.lab import SlurmLab


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
