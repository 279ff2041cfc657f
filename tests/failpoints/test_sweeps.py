"""A controller is killed around each commit about sweeps, and another one goes on: each trial is made once."""

import pytest
from sqlalchemy import select

from store.sweeps import advance, listing, requests, submit
from store.sweeps.facts import NewSweep
from store.tables import Job, SweepTrial
from store.team.callers import SERVICE
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.fixture import FailpointFixture
from tests.sessions import write
from tests.store.fixture import store_on
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.points import checked_points, spec_of
from torchyard.contract.sweeps.spec import SweepState, parse_sweep

SIDES = ("before", "after")
MAKING = [f"store.make_trials.{side}" for side in SIDES]
ASKING = [f"store.ask_trials.{side}" for side in SIDES]
REQUESTING = [f"store.sweeps.{side}" for side in SIDES]
POINTS = [*MAKING, *ASKING, *REQUESTING]
COUNT = advance.MOST + 2
"""Trials that two transactions make."""


def submitted(service: FailpointFixture) -> str:
    job = {"trainer": "script", "config": {"code": "file:///code"}}
    spec = parse_sweep({"method": "array", "trials": COUNT, "job": job})
    known = spec.model_copy(update={"monitor": "val/loss", "mode": "min"})
    new = NewSweep(known, SERVICE, "private")
    first = spec_of(known, 0, next(checked_points(known)))
    return write(store_on(service.database), submit.submit, new, first)[0].id


def state(service: FailpointFixture, sweep_id: str) -> SweepState:
    return service.read(lambda session: listing.find_sweep(session, sweep_id, caller=SERVICE)).state


def check_trials(service: FailpointFixture, sweep_id: str) -> None:
    """Checks that each trial has one job, and each job one trial."""
    rows = service.read(lambda session: session.execute(select(SweepTrial.number, SweepTrial.job_id)).all())
    jobs = service.read(lambda session: session.execute(select(Job.trial, Job.id, Job.sweep_id)).all())
    assert sorted(row.number for row in rows) == list(range(COUNT))
    assert {(row.number, row.job_id, sweep_id) for row in rows} == {tuple(job) for job in jobs}
    assert len(jobs) == COUNT


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("point", MAKING)
def test_each_trial_is_made_once_though_its_controller_is_killed(
    service: FailpointFixture, point: str, time: int
) -> None:
    sweep_id = submitted(service)
    with started(actions.control, service.settings, plan=f"{point}=kill@{time}", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    actions.control(service.settings)
    check_trials(service, sweep_id)
    service.check_queue()


@pytest.mark.parametrize("time", [1, 2, 3])
@pytest.mark.parametrize("point", ASKING)
def test_a_cancel_reaches_each_job_though_its_controller_is_killed(
    service: FailpointFixture, point: str, time: int
) -> None:
    sweep_id = submitted(service)
    actions.control(service.settings)
    write(store_on(service.database), requests.ask, "cancel", sweep_id, caller=SERVICE)
    with started(actions.control, service.settings, plan=f"{point}=kill@{time}", log=service.log) as child:
        assert child.wait() == -9
    actions.control(service.settings)
    assert state(service, sweep_id) is SweepState.CANCELLED
    assert {job.state for job in service.jobs()} == {JobState.CANCELLED}
    check_trials(service, sweep_id)


@pytest.mark.parametrize("point", REQUESTING)
def test_a_repeated_request_completes_a_killed_one(service: FailpointFixture, point: str) -> None:
    sweep_id = submitted(service)
    arguments = (actions.pause_sweep, service.settings, sweep_id)
    with started(*arguments, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
    assert state(service, sweep_id) is (SweepState.PAUSED if point.endswith("after") else SweepState.RUNNING)
    actions.pause_sweep(service.settings, sweep_id)
    assert state(service, sweep_id) is SweepState.PAUSED


@pytest.mark.thorough
@pytest.mark.parametrize("point", [*MAKING, *ASKING])
def test_two_controllers_of_which_one_is_slow_make_each_trial_once(service: FailpointFixture, point: str) -> None:
    sweep_id = submitted(service)
    with started(actions.control, service.settings, plan=f"{point}=delay:0.3", log=service.log) as child:
        actions.control(service.settings)
        write(store_on(service.database), requests.ask, "cancel", sweep_id, caller=SERVICE)
        actions.control(service.settings)
        child.wait()
    actions.control(service.settings)
    assert state(service, sweep_id) is SweepState.CANCELLED
    rows = service.read(lambda session: session.execute(select(SweepTrial.number)).all())
    assert len(rows) == len(service.jobs())
