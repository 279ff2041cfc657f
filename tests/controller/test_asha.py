"""A sweep by `asha` in the controller: trials pause at their rungs, the best go on, the others are stopped early."""

import pytest

from controller.sweeps.duty import Sweeps
from store.store import Store
from store.sweeps import requests
from store.sweeps.facts import TrialFacts
from store.team import quotas, users
from store.team.callers import SERVICE
from tests.approved import Approved
from tests.controller.test_sweeps import ADA, Yard
from tests.databases import quick_on_sqlite
from tests.sessions import write
from tests.store.fixture import StoreFixture, checkpoint, run_together
from torchyard.contract.errors import Conflict
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.team.roles import Resource


class Asha(Yard):
    """Trials at 1, 3 and 9 epochs, over ten values of the option `x`; what a trial measures is its value of `x`."""

    def start(self, *, trials: int = 9, max_parallel: int = 9) -> str:
        return self.sweep(
            method="asha",
            trials=trials,
            max_parallel=max_parallel,
            parameters={"args.x": [0.1 * number for number in range(10)]},
            halving={"min": 1, "max": 9, "factor": 3},
        )

    def reach_rung(self, trial: TrialFacts) -> None:
        """Has the trial's job pause where it is to, with a better value than before."""
        job_id = str(trial.job_id)
        epochs = (self.db.job(job_id).pause_at or {})["epochs"]
        claim = self.db.running(job_id, self.db.worker(f"box-{job_id}"))
        loss = float(str(trial.point["args.x"])) + 1 / epochs
        saved = checkpoint(f"epoch-{epochs}", step=epochs, epoch=epochs, val_loss=loss)
        self.db.record(claim, seq=0, checkpoints=[saved])
        assert self.db.end(claim, EndReason.PAUSED, asked=False) is JobState.PAUSED

    def reach_rungs(self, sweep: str) -> list[int]:
        """Has all trials reach their rung that can. Returns their numbers."""
        active = [trial for trial in self.trials(sweep) if trial.is_active]
        for trial in active:
            self.reach_rung(trial)
        self.run()
        return [trial.number for trial in active]


@pytest.fixture
def yard(db: StoreFixture, store: Store) -> Asha:
    return Asha(db, store)


def _by_value(yard: Asha, sweep: str) -> list[int]:
    trials = sorted(yard.trials(sweep), key=lambda trial: float(str(trial.point["args.x"])))
    return [trial.number for trial in trials]


@quick_on_sqlite
def test_the_best_of_each_rung_go_on_and_the_others_are_stopped_early(yard: Asha, approved: Approved) -> None:
    sweep = yard.start()
    yard.run()
    best = _by_value(yard, sweep)
    assert yard.reach_rungs(sweep) == [*range(9)]
    assert yard.reach_rungs(sweep) == sorted(best[:3])
    last = best[0]
    assert yard.db.job(yard.ids(sweep)[last]).pause_at == {"epochs": 9}
    yard.end(yard.ids(sweep)[last])
    yard.run()

    assert yard.state(sweep) is SweepState.FINISHED
    trials = yard.trials(sweep)
    assert [len(trials[number].rungs) for number in best] == [2, 2, 2, *[1] * 6]
    assert [trials[number].state for number in best] == [JobState.SUCCEEDED, *[JobState.CANCELLED] * 8]
    stopped = yard.db.job(yard.ids(sweep)[best[1]])
    assert (stopped.reason_code, stopped.reason_message) == ("stopped_early", approved("reason_message"))
    found = yard.get(sweep).best
    assert found is not None
    assert found.trial == last


def test_a_trial_that_was_stopped_early_can_be_promoted_and_goes_on_from_its_checkpoint(yard: Asha) -> None:
    sweep = yard.start(trials=2)
    yard.run()
    best = _by_value(yard, sweep)
    for _ in range(3):
        yard.reach_rungs(sweep)
    assert yard.state(sweep) is SweepState.FINISHED
    old = yard.ids(sweep)[best[1]]
    write(yard.store, requests.promote, sweep, best[1], caller=ADA)
    job = yard.db.job(yard.ids(sweep)[best[1]])
    assert (job.state, job.retry_of, job.pause_at) == (JobState.QUEUED, old, None)


@quick_on_sqlite
def test_room_goes_to_promotions_first(yard: Asha) -> None:
    sweep = yard.start(max_parallel=3)
    yard.run()
    yard.reach_rungs(sweep)
    states = [trial.state for trial in yard.trials(sweep)]
    assert states.count(JobState.QUEUED) == 3
    assert len(states) == 5
    assert [trial.state for trial in yard.trials(sweep)[:3]].count(JobState.QUEUED) == 1


def test_several_controllers_promote_each_trial_once(yard: Asha) -> None:
    sweep = yard.start(trials=6)
    yard.run()
    for trial in yard.trials(sweep):
        yard.reach_rung(trial)
    run_together(*[Sweeps(yard.store).run for _ in range(4)])
    yard.run()
    moves = [yard.db.moves(job_id).count("queued") for job_id in yard.ids(sweep)]
    assert sorted(moves) == [1] * 4 + [2] * 2


@quick_on_sqlite
def test_a_trial_that_came_to_its_next_rung_is_not_sent_there_again(yard: Asha) -> None:
    """As by a controller that was stopped before its transaction."""
    sweep = yard.start(trials=3)
    yard.run()
    yard.reach_rungs(sweep)
    late = next(trial for trial in yard.trials(sweep) if trial.is_active)
    yard.reach_rung(late)
    assert not yard.db.promote(str(late.job_id), epochs=3)


@quick_on_sqlite
def test_while_the_sweep_is_paused_nobody_goes_on(yard: Asha) -> None:
    sweep = yard.start(trials=3)
    yard.run()
    for trial in yard.trials(sweep):
        yard.reach_rung(trial)
    write(yard.store, requests.ask, "pause", sweep, caller=ADA)
    yard.run()
    assert not any(trial.is_active for trial in yard.trials(sweep))
    write(yard.store, requests.ask, "resume", sweep, caller=ADA)
    yard.run()
    active = [trial for trial in yard.trials(sweep) if trial.is_active]
    assert [yard.db.job(str(trial.job_id)).pause_at for trial in active] == [{"epochs": 3}]


@pytest.mark.thorough
@quick_on_sqlite
def test_a_quota_that_is_used_up_stops_no_trial_early(yard: Asha) -> None:
    sweep = yard.start(trials=3)
    yard.run()
    for trial in yard.trials(sweep):
        yard.reach_rung(trial)
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.STORED_BYTES: 0}, caller=SERVICE))
    yard.run()
    assert [trial.at_rung for trial in yard.trials(sweep)] == [True] * 3
    assert yard.get(sweep).status_reason.code == "quota_exceeded"
    yard.db.write(
        lambda session: quotas.set_limits(session, "user", "ada", {Resource.STORED_BYTES: 1 << 40}, caller=SERVICE)
    )
    yard.run()
    assert [trial.is_active for trial in yard.trials(sweep)].count(True) == 1


@pytest.mark.thorough
@quick_on_sqlite
def test_a_disabled_owner_pauses_the_sweep(yard: Asha) -> None:
    sweep = yard.start(trials=3)
    yard.run()
    for trial in yard.trials(sweep):
        yard.reach_rung(trial)
    yard.db.write(lambda session: users.change(session, "ada", disabled=True, caller=SERVICE))
    yard.run()
    assert yard.state(sweep) is SweepState.PAUSED
    assert not any(trial.is_active for trial in yard.trials(sweep))


@pytest.mark.thorough
def test_a_trial_that_waits_is_promoted_by_hand_to_its_end(yard: Asha) -> None:
    sweep = yard.start(max_parallel=2)
    yard.run()
    first, second = yard.trials(sweep)
    yard.reach_rung(first)
    found = run_together(*[lambda: write(yard.store, requests.promote, sweep, first.number, caller=ADA)] * 2)
    assert [isinstance(each, Conflict) for each in found].count(True) == 1
    job = yard.db.job(str(first.job_id))
    assert (job.state, job.pause_at) == (JobState.QUEUED, None)
    assert yard.trials(sweep)[second.number].is_active
