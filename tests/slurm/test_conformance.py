"""The promises of the engine interface on a real Slurm: with one node, and with two."""

from collections.abc import Generator
from pathlib import Path
import tempfile

import pytest

from tests.slurm.engines import LabEngineFixture
from tests.slurm.lab import SlurmLab
from tests.worker.engines.fixtures import EngineFixture
from tests.worker.engines.test_conformance import *  # noqa: F403
from tests.worker.engines.test_conformance import end_of, started
from torchyard.contract.states import EndReason

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def own_lab() -> Generator[SlurmLab]:
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, SlurmLab(Path(folder), nodes=2, gpus=0) as lab:
        yield lab


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.thorough), 2])
def fixture(request: pytest.FixtureRequest, own_lab: SlurmLab) -> Generator[LabEngineFixture]:
    with tempfile.TemporaryDirectory(prefix="engine-", dir=own_lab.folder) as folder:
        slurm = LabEngineFixture(Path(folder), own_lab, nodes=request.param)
        yield slurm
        slurm.clean_up()


def test_a_program_that_fails_is_reported_with_its_error(fixture: EngineFixture) -> None:
    handle = started(fixture, "fails")
    fixture.wait_for_program(handle)
    report = end_of(fixture.engine, handle)
    assert report.reason is EndReason.USER_ERROR
    assert report.message.endswith("ValueError: no luck")  # with several nodes, it begins with the node
