from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from store.db.database import Database
from tests.store.fixture import StoreFixture
from tests.worker.attempts.fixture import INVENTORY, SimulatedRunnerFixture, worker_context
from tests.worker.engines.memory import MemoryEngine


@pytest.fixture
def spec() -> dict[str, Any]:
    """The keys of the job's spec that a test changes."""
    return {}


@pytest.fixture
def simulated(tmp_path: Path, database: Database, spec: dict[str, Any]) -> Generator[SimulatedRunnerFixture]:
    """A claimed job on an engine without processes."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    store = StoreFixture(database)
    job_id = store.submit(config={"code": f"file://{code}"}, **spec)
    claim = store.starting(job_id, store.worker())
    engine = MemoryEngine(INVENTORY)
    context = worker_context(tmp_path, database, engine, worker_id=claim.worker_id, allowed=(code,))
    fixture = SimulatedRunnerFixture(store, context, engine, claim)
    yield fixture
    fixture.close()
