"""A lab for the tests of a module."""

from collections.abc import Generator
from pathlib import Path
import tempfile

import pytest

from tests.hosts.lab import Lab


@pytest.fixture(scope="module")
def lab() -> Generator[Lab]:
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, Lab(Path(folder) / "l") as lab:
        yield lab
