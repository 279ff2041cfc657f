from collections.abc import Generator
from pathlib import Path

import pytest

from tests.worker.packages.fixture import Packages
from tests.worker.packages.index import Index, serving
from worker.host.untrusted import remove_inside


@pytest.fixture
def index() -> Generator[Index]:
    with serving() as served:
        yield served


@pytest.fixture
def packages(tmp_path: Path, index: Index) -> Generator[Packages]:
    fixture = Packages(tmp_path, index)
    yield fixture
    fixture.close()
    remove_inside(tmp_path, "environments")
