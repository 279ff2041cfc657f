"""What the engine of Slurm knows of its attempts while other threads add some."""

from collections.abc import Collection, Generator, Iterator
from pathlib import Path

import pytest

from tests.worker.attempt import wait_for
from tests.worker.engines.slurm.engines import SlurmEngineFixture
from worker.engines.base import Handle
from worker.engines.slurm.engine import SlurmEngine
from worker.host.attempt_key import AttemptKey


@pytest.fixture
def found(tmp_path: Path) -> Generator[SlurmEngineFixture]:
    fixture = SlurmEngineFixture(tmp_path)
    yield fixture
    fixture.clean_up()


class AddingKeys(Collection[AttemptKey]):
    """The open attempts. At each question another attempt starts, as in a thread of its own."""

    def __init__(self, engine: SlurmEngine, keys: Collection[AttemptKey]) -> None:
        self._engine = engine
        self._keys = {*keys}
        self.added: list[AttemptKey] = []

    def __contains__(self, key: object) -> bool:
        new = AttemptKey(f"job_new{len(self.added)}", 1)
        self.added.append(new)
        self._engine.adopt(handle_of(new))
        return key in self._keys

    def __iter__(self) -> Iterator[AttemptKey]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def handle_of(key: AttemptKey) -> Handle:
    return Handle(key, 1, {"engine": "slurm", "name": f"name-{key.job_id}", "submitted": True})


def test_attempts_that_start_while_others_are_ended_are_followed(found: SlurmEngineFixture) -> None:
    first = found.engine.start(found.plan("waits"))
    wait_for(lambda: found.engine.runs(first.key), "it is listed")
    keys = AddingKeys(found.engine, {first.key})
    found.engine.kill_others(keys)
    assert keys.added
    assert found.engine.runs(first.key)
