"""The sweeps of a controller: each trial is made once, and what is asked of a sweep reaches its jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller.notifications.deliver import FanOut
from controller.sweeps.duty import Sweeps
from store.jobs import requests as job_requests
from store.jobs.submission import KeyedRequest
from store.notifications import targets
from store.notifications.facts import NewTarget
from store.output.facts import MetricPoint
from store.secret_keys import SecretKeys
from store.store import Store
from store.sweeps import advance, due, listing, requests, submit
from store.sweeps.facts import NewSweep, TrialFacts
from store.tables import Job, Message, SweepTrial
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from store.worker.verbs import WorkerStore
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import read, write
from tests.store.fixture import StoreFixture, checkpoint, recorded_statements, run_together
from torchyard.contract.errors import Conflict, Forbidden, InvalidSpec, NotFound
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.sweeps.points import checked_points, spec_of
from torchyard.contract.sweeps.spec import SweepExtension, SweepState, parse_sweep
from torchyard.contract.sweeps.views import SweepView, TrialCounts
from torchyard.contract.team.roles import Resource, Role
from torchyard.run import Run

ADA, BOB = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER)
SCRIPT = {"trainer": "script", "config": {"code": "file:///code"}}


class Yard:
    """A store with two users, and a controller's duty on it."""

    def __init__(self, db: StoreFixture, store: Store) -> None:
        self.db, self.store, self.duty = db, store, Sweeps(store)
        for name in ("ada", "bob"):
            db.write(lambda session, name=name: users.add(session, name, Role.MEMBER, caller=SERVICE))

    def sweep(self, *, caller: Caller = ADA, **spec: Any) -> str:
        """Submits a sweep that varies the argument `x` of a script. Without `parameters` in `spec` it has 3 points."""
        varied = {} if "points" in spec or spec.get("method") == "array" else {"parameters": {"args.x": [1, 2, 3]}}
        parsed = parse_sweep({"name": "tune", "job": SCRIPT, **varied, **spec})
        known = parsed.model_copy(update={"monitor": "val/loss", "mode": "min"})
        first = spec_of(known, 0, next(checked_points(known)))
        return write(self.store, submit.submit, NewSweep(known, caller, "private"), first)[0].id

    def run(self) -> None:
        """Runs the duty until nothing is due."""
        for _ in range(100):
            if not self.duty.run():
                return
        raise AssertionError("the duty never ends")

    def get(self, sweep_id: str) -> SweepView:
        return read(self.store, listing.find_sweep, sweep_id, caller=SERVICE)

    def state(self, sweep_id: str) -> SweepState:
        return self.get(sweep_id).state

    def trials(self, sweep_id: str) -> Sequence[TrialFacts]:
        found = read(self.store, listing.list_trials, sweep_id, caller=SERVICE, sort="number", limit=1000)
        return [trial for trial, _ in found.items]

    def ids(self, sweep_id: str) -> list[str]:
        return [str(trial.job_id) for trial in self.trials(sweep_id)]

    def end(self, job_id: str, reason: EndReason = EndReason.COMPLETED, *, loss: float | None = None) -> None:
        claim = self.db.running(job_id, self.db.worker(f"box-{job_id}"))
        if loss is not None:
            self.db.record(claim, seq=0, checkpoints=[checkpoint("best", step=1, epoch=1, val_loss=loss)])
        self.db.end(claim, reason)


@pytest.fixture
def yard(db: StoreFixture, store: Store) -> Yard:
    return Yard(db, store)


def test_a_controller_reads_of_trials_what_lists_have(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    first, *others = yard.ids(sweep)
    yard.end(first, loss=0.5)
    yard.end(others[0], EndReason.USER_ERROR)
    listed = [replace(trial, error=None) for trial in yard.trials(sweep)]
    assert [trial.value for trial in listed] == [0.5, None, None]
    known = read(yard.store, due.read_known_trials, sweep)
    assert [known(count) for count in range(4)] == [listed[:count] for count in range(4)]
    at_rungs = [replace(trial, point={}, point_omitted=True, step=0, epoch=None) for trial in listed]
    assert read(yard.store, due.read_trials_at_rungs, sweep) == at_rungs


def test_a_grid_becomes_jobs_with_their_values_names_and_numbers(yard: Yard) -> None:
    sweep = yard.sweep(labels={"by": "sweep"})
    yard.run()
    jobs = [yard.db.job(job_id) for job_id in yard.ids(sweep)]
    assert [job.spec["config"]["args"] for job in jobs] == [["--x", "1"], ["--x", "2"], ["--x", "3"]]
    assert [(job.name, job.sweep_id, job.trial, job.owner) for job in jobs] == [
        (f"tune-{number}", sweep, number, "ada") for number in range(3)
    ]
    assert {job.state for job in jobs} == {JobState.QUEUED}
    assert {job.labels["by"] for job in jobs} == {"sweep"}


def test_the_ranks_of_a_trial_know_its_number(yard: Yard) -> None:
    sweep = yard.sweep(method="array", trials=2)
    yard.run()
    claim = yard.db.starting(yard.ids(sweep)[1], yard.db.worker())
    assert WorkerStore(yard.store, claim.worker_id).read(claim).variables == {"TORCHYARD_TRIAL": "1"}
    assert Run({"TORCHYARD_TRIAL": "1"}).trial == 1
    assert Run({}).trial is None


@quick_on_sqlite
def test_no_more_trials_run_at_once_than_the_sweep_allows(yard: Yard) -> None:
    sweep = yard.sweep(max_parallel=2)
    yard.run()
    assert len(yard.ids(sweep)) == 2
    yard.end(yard.ids(sweep)[0])
    yard.run()
    assert len(yard.ids(sweep)) == 3


def test_two_controllers_make_each_trial_once(yard: Yard) -> None:
    sweep = yard.sweep(parameters={"args.x": list(range(40))})
    run_together(*[Sweeps(yard.store).run for _ in range(4)])
    yard.run()
    made = yard.db.read(lambda session: session.scalars(select(Job.trial).where(Job.sweep_id == sweep)).all())
    assert sorted(made, key=str) == sorted(range(40), key=str)
    assert [trial.number for trial in yard.trials(sweep)] == list(range(40))


def test_requests_with_one_key_at_once_submit_one_sweep(yard: Yard) -> None:
    raw = {"method": "array", "trials": 2, "monitor": "val/loss", "mode": "min", "job": SCRIPT}
    spec = parse_sweep(raw)
    first = spec_of(spec, 0, next(checked_points(spec)))
    new = NewSweep(spec, ADA, "private", KeyedRequest("ada", "once", "f" * 64))
    answers = run_together(*[lambda: write(yard.store, submit.submit, new, first)] * 4)
    submitted = [each for each in answers if not isinstance(each, Exception)]
    assert sorted(replayed for _, replayed in submitted) == [False, True, True, True]
    assert len({sweep.id for sweep, _ in submitted}) == 1


@quick_on_sqlite
def test_a_sweep_ends_when_its_trials_have_and_ranks_them(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    first, second, third = yard.ids(sweep)
    yard.end(first, loss=0.5)
    yard.end(second, loss=0.25)
    yard.end(third, loss=float("nan"))
    yard.run()
    assert yard.state(sweep) is SweepState.FINISHED
    found = read(yard.store, listing.list_trials, sweep, caller=ADA, sort="value", limit=10).items
    assert [(trial.number, rank) for trial, rank in found] == [(1, 1), (0, 2), (2, None)]
    best = yard.get(sweep).best
    assert best is not None
    assert (best.trial, best.value, best.job_id) == (1, 0.25, second)


@quick_on_sqlite
def test_a_run_without_a_checkpoint_is_ranked_by_its_newest_value(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    for job_id, values in zip(yard.ids(sweep), ([0.1, 0.75], [0.5], [0.25, math.nan]), strict=True):
        claim = yard.db.running(job_id, yard.db.worker(f"box-{job_id}"))
        points = [MetricPoint("val/loss", step, value, 1) for step, value in enumerate(values)]
        yard.db.record(claim, seq=0, points=points)
        told = {trial.job_id: trial.value for trial in yard.trials(sweep)}
        assert told[job_id] == pytest.approx(values[-1], nan_ok=True), "also while it runs"
        yard.db.end(claim, EndReason.COMPLETED)
    found = read(yard.store, listing.list_trials, sweep, caller=ADA, sort="value", limit=10).items
    assert [(trial.number, rank) for trial, rank in found] == [(1, 1), (0, 2), (2, None)]
    assert math.isnan(found[2][0].value or 0.0)
    best = yard.get(sweep).best
    assert best is not None
    assert (best.trial, best.checkpoint_id) == (1, None)


@quick_on_sqlite
def test_a_pause_reaches_the_jobs_and_a_resume_takes_it_back(yard: Yard) -> None:
    sweep = yard.sweep(max_parallel=2)
    yard.run()
    running = yard.db.running(yard.ids(sweep)[0], yard.db.worker())
    write(yard.store, requests.ask, "pause", sweep, caller=ADA)
    yard.run()
    assert yard.state(sweep) is SweepState.PAUSED
    assert yard.db.end(running, EndReason.PAUSED) is JobState.PAUSED
    yard.run()
    assert {trial.state for trial in yard.trials(sweep)} == {JobState.PAUSED}
    write(yard.store, requests.ask, "resume", sweep, caller=ADA)
    yard.run()
    assert [trial.state for trial in yard.trials(sweep)] == [JobState.QUEUED, JobState.QUEUED]
    assert yard.state(sweep) is SweepState.RUNNING


@quick_on_sqlite
def test_an_owner_has_few_sweeps_that_have_not_ended(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr("store.sweeps.submit.MOST_OPEN", 2)
    finished = yard.sweep(method="list", points=[{"args.x": 1}])
    yard.run()
    yard.end(yard.ids(finished)[0])
    yard.run()
    yard.sweep()
    last = yard.sweep()
    with pytest.raises(Conflict) as raised:
        yard.sweep()
    assert str(raised.value) == approved("message")
    with pytest.raises(Conflict, match="ada has 2 unfinished sweeps"):
        submit.extend(yard.store, finished, SweepExtension(points=[{"args.x": 2}]), caller=ADA)
    yard.sweep(caller=BOB)
    write(yard.store, requests.ask, "cancel", last, caller=ADA)
    yard.run()
    yard.sweep()


def test_a_paused_sweep_costs_a_controller_nothing(yard: Yard) -> None:
    sweep = yard.sweep()
    write(yard.store, requests.ask, "pause", sweep, caller=ADA)
    yard.run()
    assert read(yard.store, due.list_due) == []
    write(yard.store, requests.ask, "resume", sweep, caller=ADA)
    assert [each.id for each in read(yard.store, due.list_due)] == [sweep]


def test_a_pass_reads_no_spec_of_a_sweep_that_waits(yard: Yard) -> None:
    """90 open sweeps of 0.9 MB were parsed anew in each pass."""
    yard.sweep(max_parallel=1)
    yard.run()
    with recorded_statements(yard.db.database) as found:
        assert not yard.duty.run()
    assert found
    assert not any("spec" in statement for statement in found)


def test_a_pass_sees_that_more_may_run_at_once(yard: Yard) -> None:
    sweep = yard.sweep(max_parallel=1)
    yard.run()
    submit.extend(yard.store, sweep, SweepExtension(max_parallel=3), caller=ADA)
    yard.run()
    assert len(yard.ids(sweep)) == 3


@quick_on_sqlite
def test_a_sweep_cancelled_in_the_middle_makes_no_more_and_ends(yard: Yard) -> None:
    sweep = yard.sweep(parameters={"args.x": list(range(250))})
    yard.duty.run()
    running = yard.db.running(yard.ids(sweep)[0], yard.db.worker())
    write(yard.store, requests.ask, "cancel", sweep, caller=ADA)
    yard.run()
    assert yard.state(sweep) is SweepState.CANCELLING
    assert len(yard.ids(sweep)) == advance.MOST
    yard.db.end(running, EndReason.CANCELLED)
    yard.run()
    assert yard.state(sweep) is SweepState.CANCELLED
    assert yard.get(sweep).trials == TrialCounts(total=250, waiting=250 - advance.MOST, cancelled=advance.MOST)


def test_a_cancel_while_a_controller_makes_trials_leaves_none_running(yard: Yard) -> None:
    sweep = yard.sweep(parameters={"args.x": list(range(150))})
    run_together(yard.duty.run, lambda: bool(write(yard.store, requests.ask, "cancel", sweep, caller=ADA)))
    yard.run()
    assert yard.state(sweep) is SweepState.CANCELLED
    assert {trial.state for trial in yard.trials(sweep)} <= {JobState.CANCELLED}


def test_a_sweep_stops_after_too_many_failures(yard: Yard) -> None:
    sweep = yard.sweep(max_failed=1)
    yard.run()
    yard.end(yard.ids(sweep)[1], EndReason.DATA_ERROR)
    yard.run()
    found = yard.get(sweep)
    assert found.state is SweepState.FAILED
    assert "max_failed is 1" in found.status_reason.message
    assert found.trials == TrialCounts(total=3, failed=1, cancelled=2)


def test_a_trial_that_is_refused_fails_and_says_why(yard: Yard) -> None:
    missing = f"bundle:sha256:{'0' * 64}"
    sweep = yard.sweep(parameters={"config.code": ["file:///code", missing, "file:///other"]})
    yard.run()
    refused = yard.trials(sweep)[1]
    assert (refused.state, refused.job_id) == (JobState.FAILED, None)
    assert "upload it first" in str(refused.error)
    assert [trial.state for trial in yard.trials(sweep)] == [JobState.QUEUED, JobState.FAILED, JobState.QUEUED]


@quick_on_sqlite
def test_a_quota_that_is_used_up_is_waited_for(yard: Yard) -> None:
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.QUEUED: 2}, caller=SERVICE))
    sweep = yard.sweep()
    yard.run()
    assert len(yard.ids(sweep)) == 2
    assert yard.get(sweep).status_reason.code == "quota_exceeded"
    yard.end(yard.ids(sweep)[0])
    yard.run()
    assert len(yard.ids(sweep)) == 3
    assert yard.get(sweep).status_reason.code == "running"


@pytest.mark.parametrize(
    ("limit", "varies", "why"),
    [
        (Resource.PRIORITY, "priority", "priority is 9; the maximum of ada is 5"),
        (
            Resource.DEVICES,
            "resources.devices_per_node",
            "the job requests 9 devices; the quota of ada is 5 devices at once",
        ),
    ],
)
def test_a_trial_that_the_quota_never_allows_fails_and_holds_no_other_back(
    yard: Yard, limit: Resource, varies: str, why: str
) -> None:
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {limit: 5}, caller=SERVICE))
    sweep = yard.sweep(parameters={varies: [9, 1, 2]})
    yard.run()
    assert [(trial.state, trial.error) for trial in yard.trials(sweep)] == [
        (JobState.FAILED, why),
        (JobState.QUEUED, None),
        (JobState.QUEUED, None),
    ]
    assert yard.get(sweep).status_reason.code == "running"


def test_a_sweep_of_a_disabled_user_pauses(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.db.write(lambda session: users.change(session, "ada", disabled=True, caller=SERVICE))
    yard.run()
    assert yard.state(sweep) is SweepState.PAUSED
    assert yard.get(sweep).status_reason.code == "owner_disabled"
    assert yard.trials(sweep) == []


@quick_on_sqlite
def test_the_owner_sees_that_a_step_fails_until_one_succeeds(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = yard.sweep(), yard.sweep()
    make_trials = advance.make_trials

    def fails(session: Session, sweep_id: str, points: Sequence[Any], *, first: int) -> bool:
        if sweep_id == broken:
            raise ValueError("by a newer program")
        return make_trials(session, sweep_id, points, first=first)

    with monkeypatch.context() as patch:
        patch.setattr(advance, "make_trials", fails)
        yard.run()
        found = yard.get(broken)
        assert (found.state, found.status_reason.code) == (SweepState.RUNNING, "internal")
        assert found.status_reason.message.startswith("a step of the sweep failed and is retried")
        yard.run()
        assert yard.get(broken).version == found.version  # it is told once
    assert len(yard.trials(sound)) == 3
    yard.run()
    assert (len(yard.trials(broken)), yard.get(broken).status_reason.code) == (3, "running")


@quick_on_sqlite
def test_a_cancelled_sweep_whose_step_fails_says_so_and_ends_as_it_was_asked(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = yard.sweep()
    write(yard.store, requests.ask, "cancel", sweep, caller=ADA)
    before = yard.get(sweep)

    def fails(*_: Any) -> bool:
        raise ValueError("by a newer program")

    with monkeypatch.context() as patch:
        patch.setattr(advance, "ask_jobs", fails)
        yard.run()
        yard.run()
        found = yard.get(sweep)
        assert found.status_reason.code == before.status_reason.code
        assert found.status_reason.message.startswith(f"{before.status_reason.message}; a step of the sweep failed")
        assert found.status_reason.message.count("a step of the sweep failed") == 1
    yard.run()
    assert yard.state(sweep) is SweepState.CANCELLED


@quick_on_sqlite
def test_a_trial_whose_job_is_deleted_stays_in_the_ranking(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    first = yard.ids(sweep)[0]
    yard.end(first, loss=0.5)
    write(yard.store, job_requests.act, "delete", first, caller=ADA)
    found = yard.trials(sweep)[0]
    assert (found.job_id, found.state, found.value) == (None, JobState.SUCCEEDED, 0.5)
    with pytest.raises(Conflict, match="no job"):
        write(yard.store, requests.promote, sweep, 0, caller=ADA)


def test_of_two_promoters_one_has_the_trial_go_on(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    old = yard.ids(sweep)[0]
    yard.end(old, loss=0.5)

    def promote() -> None:
        write(yard.store, requests.promote, sweep, 0, caller=ADA)

    answers = run_together(promote, promote)
    assert len([each for each in answers if each is None]) == 1
    assert len([each for each in answers if isinstance(each, Conflict)]) == 1
    new = yard.ids(sweep)[0]
    assert yard.db.job(new).retry_of == old
    assert yard.trials(sweep)[0].state is JobState.QUEUED


@quick_on_sqlite
def test_an_administrator_who_promotes_leaves_the_job_to_its_owner(yard: Yard) -> None:
    sweep = yard.sweep()
    yard.run()
    yard.end(yard.ids(sweep)[0])
    write(yard.store, requests.promote, sweep, 0, caller=SERVICE)
    assert yard.db.job(yard.ids(sweep)[0]).owner == "ada"


def test_a_finished_sweep_goes_on_with_what_is_added(yard: Yard) -> None:
    sweep = yard.sweep(method="list", points=[{"args.x": 1}])
    yard.run()
    yard.end(yard.ids(sweep)[0])
    yard.run()
    assert yard.state(sweep) is SweepState.FINISHED
    submit.extend(yard.store, sweep, SweepExtension(points=[{"args.x": 2}]), caller=ADA)
    yard.run()
    assert [trial.point for trial in yard.trials(sweep)] == [{"args.x": 1}, {"args.x": 2}]
    assert yard.state(sweep) is SweepState.RUNNING


def test_the_trials_of_a_sweep_wait_for_the_jobs_that_were_meant_at_its_submission(yard: Yard) -> None:
    meant = yard.db.submit(name="prepare")
    sweep = yard.sweep(job=SCRIPT | {"after": [{"job": "prepare"}]})
    yard.db.submit(name="prepare")
    yard.run()
    assert {yard.db.job(job_id).spec["after"][0]["job"] for job_id in yard.ids(sweep)} == {meant}
    assert {trial.state for trial in yard.trials(sweep)} == {JobState.QUEUED}


def test_a_sweep_after_a_job_that_is_not_there_is_refused(yard: Yard, approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as raised:
        yard.sweep(job=SCRIPT | {"after": [{"job": "absent"}]})
    assert raised.value.errors[0].message == approved("message")


def test_a_sweep_is_its_owners(yard: Yard) -> None:
    sweep = yard.sweep()
    acts: list[Callable[[], Any]] = [
        lambda: read(yard.store, listing.find_sweep, sweep, caller=BOB),
        lambda: write(yard.store, requests.ask, "cancel", sweep, caller=BOB),
        lambda: write(yard.store, requests.delete, sweep, caller=BOB),
        lambda: write(yard.store, requests.promote, sweep, 0, caller=BOB),
    ]
    for act in acts:
        with pytest.raises(NotFound):
            act()
    shared = yard.sweep(visibility="team")
    assert read(yard.store, listing.find_sweep, shared, caller=BOB).id == shared
    with pytest.raises(Forbidden):
        write(yard.store, requests.ask, "cancel", shared, caller=BOB)


@pytest.mark.parametrize("jobs", [False, True])
def test_a_sweep_that_has_ended_can_be_deleted(yard: Yard, *, jobs: bool) -> None:
    sweep = yard.sweep()
    yard.run()
    ids = yard.ids(sweep)
    with pytest.raises(Conflict):
        write(yard.store, requests.delete, sweep, caller=ADA)
    write(yard.store, requests.ask, "cancel", sweep, caller=ADA)
    yard.run()
    deleted = [*requests.delete_jobs(yard.store, sweep, caller=ADA)] if jobs else []
    assert deleted == (ids if jobs else [])
    write(yard.store, requests.delete, sweep, caller=ADA)
    with pytest.raises(NotFound):
        yard.get(sweep)
    left = yard.db.read(lambda session: session.execute(select(Job.id, Job.sweep_id).order_by(Job.id)).all())
    assert [*map(tuple, left)] == ([] if jobs else [(job_id, None) for job_id in ids])
    assert yard.db.read(lambda session: session.scalar(select(func.count()).select_from(SweepTrial))) == 0


@quick_on_sqlite
def test_the_end_of_a_sweep_is_told_and_its_trials_are_not(yard: Yard, approved: Approved) -> None:
    told = told_of(yard)
    sweep = yard.sweep()
    yard.run()
    for job_id, loss in zip(yard.ids(sweep), (0.5, 0.25, None), strict=True):
        yard.end(job_id, loss=loss)
    yard.run()
    (message,) = told()
    data = message.body["data"]
    assert (message.kind, data["title"], data["trials"]) == ("sweep.finished", approved("title"), {"succeeded": 3})
    assert (data["best"]["number"], data["best"]["value"]) == (1, 0.25)
    assert data["text"] == approved("text")


@quick_on_sqlite
def test_a_trial_is_told_to_the_targets_that_its_spec_names(yard: Yard) -> None:
    told = told_of(yard)
    sweep = yard.sweep(job={**SCRIPT, "notify": {"targets": ["hook"], "on": ["job.succeeded"]}})
    yard.run()
    yard.end(yard.ids(sweep)[0])
    (message,) = told()
    assert (message.kind, message.body["data"]["job"]["trial"]) == ("job.succeeded", 0)


@quick_on_sqlite
def test_a_target_that_is_removed_stops_no_trial_that_names_it(yard: Yard) -> None:
    told_of(yard)
    job = {**SCRIPT, "notify": {"targets": ["hook"]}}
    sweep = yard.sweep(job=job, max_parallel=1)
    with pytest.raises(InvalidSpec):
        yard.sweep(job=job, caller=BOB)
    yard.run()
    (target,) = read(yard.store, targets.list_targets, "ada")
    write(yard.store, targets.remove, target.id, owner="ada", caller=ADA)
    yard.end(yard.ids(sweep)[0])
    yard.run()
    assert [trial.state for trial in yard.trials(sweep)] == [JobState.SUCCEEDED, JobState.QUEUED]


def told_of(yard: Yard) -> Callable[[], Sequence[Message]]:
    """Adds a target of the sweeps' user that wants to know all. Returns what returns its messages."""
    yard.store.secret_keys = SecretKeys("0" * 64, Path("/nowhere"))
    new = NewTarget(owner="ada", name="hook", kind="webhook", address="https://example.com/", kinds=[*EventKind])
    write(yard.store, targets.add, yard.store.secret_keys, new, caller=ADA)

    def told() -> Sequence[Message]:
        FanOut(yard.store).run()
        return yard.db.read(lambda session: session.scalars(select(Message)).all())

    return told
