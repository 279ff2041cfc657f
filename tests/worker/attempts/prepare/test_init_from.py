"""The files of the weights that a job starts from, in the run directory of its attempts."""

from pathlib import Path
from typing import Any

import pytest

from store.jobs import deletion
from store.jobs import submit as submission
from store.jobs.submission import Submission
from store.team.callers import Caller
from tests.store.fixture import store_on
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role
from torchyard.run import Run
from worker.engines.base import AttemptPlan

ADA = Caller("ada", Role.MEMBER)


@pytest.fixture
def initial(simulated: SimulatedRunnerFixture) -> SimulatedRunnerFixture:
    """The fixture's job, which has saved step 7 and succeeded, is the source of its next job."""
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(7)
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    source = simulated.job
    spec: dict[str, Any] = {**source.spec, "init_from": f"{source.id}/latest", "max_restarts": 1}
    store = store_on(simulated.store.database, blobs=simulated.blobs)
    made = submission.submit_alone(store, Submission(parse_spec(spec), ADA, "private"))
    simulated.claim = simulated.store.starting(made.job.id, simulated.store.worker())
    return simulated


def plan(simulated: SimulatedRunnerFixture) -> AttemptPlan:
    return simulated.start_ranks().plan


def test_a_fresh_start_gets_the_files_and_a_later_attempt_its_own_checkpoint(initial: SimulatedRunnerFixture) -> None:
    first = plan(initial)
    run = Run(first.env)
    assert run.initial_folder == initial.run.initial
    assert run.resume_folder is None
    assert (initial.run.initial / "state.pt").read_bytes() == bytes([7])
    assert (initial.run.initial / "state.pt").stat().st_mode & 0o777 == 0o400
    assert any(text.startswith("starts from job_") and text.endswith("(step 7)") for text in initial.messages())
    assert initial.row.start_step == 0
    initial.save_checkpoint(3)
    initial.engine.attempts[initial.key].end(EndReason.KILLED)
    assert initial.wait_for_end().state == JobState.QUEUED
    initial.claim = initial.store.starting(initial.claim.job_id, initial.store.worker())
    again = Run(plan(initial).env)
    assert again.initial_folder is None
    assert again.resume_folder == initial.run.resume
    assert not initial.run.initial.exists()


def test_the_source_may_be_gone(initial: SimulatedRunnerFixture) -> None:
    source = initial.job.spec["init_from"].partition("/")[0]
    initial.store.write(lambda session: deletion.delete_job(session, source))
    plan(initial)
    assert (initial.run.initial / "state.pt").read_bytes() == bytes([7])


def test_a_damaged_file_fails_the_job(initial: SimulatedRunnerFixture) -> None:
    blobs = [path for path in initial.blobs.root.glob("??/*") if path.read_bytes() == bytes([7])]
    for path in blobs:
        path.chmod(0o600)
        path.write_bytes(b"x")
    initial.start_runner()
    job = initial.wait_for_end()
    assert job.state == JobState.FAILED
    assert job.error is not None
    assert job.error["code"] == "data_error"
    assert "init_from" in job.error["message"]


def test_outside_of_a_job_there_are_no_initial_weights(tmp_path: Path) -> None:
    assert Run({}).initial() is None
    assert Run({}).initial_folder is None
    assert Run({"TORCHYARD_INIT_FROM": str(tmp_path)}).initial() is None, "a file that a script wrote by itself"


def test_a_job_without_weights_has_no_folder(simulated: SimulatedRunnerFixture) -> None:
    assert "TORCHYARD_INIT_FROM" not in plan(simulated).env
