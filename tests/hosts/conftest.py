"""A lab for each test, and the service that its boxes join."""

from collections.abc import Generator
from pathlib import Path
import tempfile

import pytest

from tests.hosts.lab import Lab


@pytest.fixture
def lab() -> Generator[Lab]:
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, Lab(Path(folder) / "l") as lab:
        yield lab
