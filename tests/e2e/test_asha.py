"""A sweep by `asha` on a real service: its trials pause where they are compared, and the best one goes on."""

from typing import Any

import pytest

from tests.e2e.service import Service, until
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import SweepState

SWEEP: dict[str, Any] = {
    "name": "halving",
    "method": "asha",
    "trials": 3,
    "max_parallel": 2,
    "monitor": "val/loss",
    "mode": "min",
    "parameters": {"config.optimizer.lr": [1e-5, 3e-3, 1e-4]},
    "halving": {"min": 1, "max": 3, "factor": 3},
    "job": {
        "trainer": "image-classification",
        "resources": {"devices_per_node": 1},
        "config": {"data": {"source": "digits"}, "training": {"epochs": 3}},
        "checkpoint": {"monitor": "val/loss", "mode": "min"},
    },
}


@pytest.mark.thorough
def test_the_best_trial_goes_on_from_where_it_paused_and_the_others_are_stopped_early(service: Service) -> None:
    sweeps = service.client.sweeps
    sweep = sweeps.create(SWEEP)

    def ended() -> bool:
        return sweeps.get(sweep.id).state.ended

    until(ended, what="the sweep has ended")
    found = sweeps.get(sweep.id)
    assert (found.state, found.trials.succeeded, found.trials.cancelled) == (SweepState.FINISHED, 1, 2)
    assert found.best is not None
    assert found.best.point == {"config.optimizer.lr": 3e-3}

    ranked = [*sweeps.trials(sweep.id)]
    assert [trial.rung for trial in ranked] == [2, 1, 1]
    best, *others = [service.client.get(str(trial.job_id)).view for trial in ranked]
    assert (best.state, best.attempt) == (JobState.SUCCEEDED, 2)
    assert best.progress is not None
    assert best.progress.step == best.progress.total_steps
    epochs = [checkpoint.epoch for checkpoint in service.client.jobs.checkpoints(best.id)]
    assert sorted(epoch for epoch in epochs if epoch is not None) == [1, 2, 3]
    for other in others:
        assert (other.state, other.status_reason.message) == (JobState.CANCELLED, "stopped early, after 1 epoch")
        assert [checkpoint.epoch for checkpoint in service.client.jobs.checkpoints(other.id)] == [1]

    promoted = sweeps.promote(sweep.id, ranked[1].number)
    job = service.wait(str(promoted.job_id), JobState.SUCCEEDED)
    assert job.retry_of == others[0].id
    assert [checkpoint.epoch for checkpoint in service.client.jobs.checkpoints(job.id)][-1] == 1
