"""The schedules of a controller: each due run is submitted once for its owner, and overlaps are as was asked for."""

from datetime import timedelta
from pathlib import Path
import signal
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from controller.schedules import Schedules
from store.bundles import bundles
from store.db.database import Database, now_us
from store.jobs import requests
from store.jobs.submission import KeyedRequest
from store.schedules import schedules
from store.schedules.runs import MOST_REFUSED
from store.schedules.schedules import NewSchedule
from store.store import Store
from store.tables import Job, Schedule
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from tests import forks
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.failpoints.armed import ArmedProcess
from tests.sessions import read, write
from tests.store.fixture import StoreFixture, recorded_statements, run_together, store_on
from torchyard.contract.errors import Conflict, Forbidden, InvalidSpec, NotFound
from torchyard.contract.schedules import SchedulePatch, ScheduleState, ScheduleView
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import CANCELLED_BY_OWNER, EndReason, JobState
from torchyard.contract.team.roles import Resource, Role

ADA, BOB = Caller("ada", Role.MEMBER), Caller("bob", Role.MEMBER)
SCRIPT = {"trainer": "script", "name": "nightly", "config": {"code": "file:///code"}}
MINUTE_US = 60_000_000
YEAR_US = 365 * 24 * 60 * MINUTE_US
SHA256 = "a" * 64
POINTS = {"store.run_schedule.before": 0, "store.run_schedule.after": 1}
"""Where a controller is killed, and how many runs are stored then."""

forks.preload(__name__)


class Yard:
    """A store with two users, and a controller's duty on it."""

    def __init__(self, db: StoreFixture, store: Store) -> None:
        self.db, self.store, self.duty = db, store, Schedules(store)
        for name in ("ada", "bob"):
            db.write(lambda session, name=name: users.add(session, name, Role.MEMBER, caller=SERVICE))

    def add(self, cron: str = "0 0 1 1 *", *, caller: Caller = ADA, job: dict[str, Any] = SCRIPT, **how: Any) -> str:
        spec = parse_spec({**job, "schedule": {"cron": cron, **how}})
        assert spec.schedule is not None
        return write(self.store, schedules.add, NewSchedule(spec, spec.schedule, caller, "private"))[0].id

    def change(self, schedule_id: str, *, caller: Caller = ADA, **patch: Any) -> ScheduleView:
        return write(self.store, schedules.change, schedule_id, SchedulePatch.model_validate(patch), caller=caller)

    def pass_time(self, schedule_id: str, us: int = MINUTE_US) -> int:
        """Makes the next run due so long ago. Returns when it was."""
        due_at = self.db.read(lambda session: session.scalars(select(now_us())).one()) - us
        change = update(Schedule).where(Schedule.id == schedule_id).values(next_at=due_at)
        self.db.write(lambda session: session.execute(change))
        return due_at

    def run(self) -> None:
        """Runs the duty until nothing is due."""
        for _ in range(100):
            if not self.duty.run():
                return
        raise AssertionError("the duty never ends")

    def get(self, schedule_id: str) -> Schedule:
        """Returns the row of a schedule."""
        return self.db.read(lambda session: session.get_one(Schedule, schedule_id))

    def jobs(self) -> list[Job]:
        return self.db.read(lambda session: [*session.scalars(select(Job).order_by(Job.id))])

    def due(self, schedule_id: str, us: int = MINUTE_US) -> None:
        """Lets a run become due, and runs the duty."""
        self.pass_time(schedule_id, us)
        self.run()


@pytest.fixture
def yard(db: StoreFixture, store: Store) -> Yard:
    return Yard(db, store)


def test_a_run_is_a_job_of_the_owner_and_submitted_once(yard: Yard) -> None:
    schedule_id = yard.add("0 3 * * *", timezone="Europe/Berlin")
    yard.run()
    assert yard.jobs() == []
    due_at = yard.pass_time(schedule_id)
    yard.run()
    yard.run()
    (job,) = yard.jobs()
    assert (job.owner, job.name, job.state, job.visibility) == ("ada", "nightly", JobState.QUEUED, "private")
    assert (job.schedule_id, job.due_at) == (schedule_id, due_at)
    assert "schedule" not in job.spec
    found = yard.get(schedule_id)
    assert (found.last_job_id, found.last_due_at) == (job.id, due_at)
    assert found.next_at is not None and found.next_at > due_at


def test_years_that_were_missed_are_one_run(yard: Yard) -> None:
    schedule_id = yard.add("* * * * *")
    yard.due(schedule_id, 5 * YEAR_US)
    assert len(yard.jobs()) == 1
    assert (yard.get(schedule_id).next_at or 0) > yard.jobs()[0].created_at


def test_a_run_is_skipped_while_the_one_before_goes_on(yard: Yard) -> None:
    schedule_id = yard.add(overlap="skip")
    for _ in range(3):
        yard.due(schedule_id)
    (job,) = yard.jobs()
    assert yard.get(schedule_id).skipped == 2
    yard.db.cancel(job.id)
    yard.due(schedule_id)
    assert len(yard.jobs()) == 2


def test_a_run_is_queued_once_until_the_one_before_has_ended(yard: Yard) -> None:
    schedule_id = yard.add(overlap="queue")
    yard.due(schedule_id)
    first = yard.pass_time(schedule_id, 60 * MINUTE_US)  # an hour of a job that is due each minute
    yard.run()
    (job,) = yard.jobs()
    yard.db.cancel(job.id)
    yard.run()
    assert [each.due_at for each in yard.jobs()][1:] == [first], "one, and at once"
    assert yard.get(schedule_id).skipped == 0


@quick_on_sqlite
def test_a_run_cancels_the_one_before(yard: Yard) -> None:
    schedule_id = yard.add(overlap="cancel")
    for _ in range(3):
        yard.due(schedule_id)
    assert [job.state for job in yard.jobs()] == [JobState.CANCELLED, JobState.CANCELLED, JobState.QUEUED]
    claim = yard.db.running(yard.jobs()[-1].id, yard.db.worker(), "slot-0")
    yard.due(schedule_id)
    assert yard.db.job(claim.job_id).cancel_requested_at is not None, "a running one saves a checkpoint first"
    assert yard.jobs()[-1].state == JobState.QUEUED


def test_a_replaced_run_says_that_the_next_one_replaced_it(yard: Yard) -> None:
    schedule_id, worker = yard.add(overlap="cancel"), yard.db.worker()
    yard.due(schedule_id)
    claim = yard.db.running(yard.jobs()[0].id, worker, "slot-0")
    yard.due(schedule_id)
    yard.due(schedule_id)
    yard.db.end(claim, EndReason.CANCELLED, f"{CANCELLED_BY_OWNER}; killed after a grace of 1s")
    ran, waited, newest = yard.jobs()
    assert waited.reason_message == "replaced by the next run of its schedule"
    assert ran.reason_message == yard.db.attempt(claim).detail == f"{waited.reason_message}; killed after a grace of 1s"
    yard.db.cancel(newest.id)
    assert yard.jobs()[2].reason_message == CANCELLED_BY_OWNER


@quick_on_sqlite
def test_a_run_whose_worker_is_lost_says_who_cancelled_it(yard: Yard, approved: Approved) -> None:
    schedule_id, worker = yard.add(overlap="cancel"), yard.db.worker()
    for asks_first in (False, True):
        yard.due(schedule_id)
        job = yard.jobs()[-1]
        claim = yard.db.running(job.id, worker, "slot-0")
        if asks_first:
            yard.db.cancel(job.id)
        yard.due(schedule_id)
        yard.db.end(claim, EndReason.WORKER_LOST, "lost")
        told = CANCELLED_BY_OWNER if asks_first else "replaced by the next run of its schedule"
        assert yard.db.job(job.id).reason_message == approved("reason_message", told=told)


def test_a_run_that_replaces_one_that_was_deleted_meanwhile_goes_on(yard: Yard) -> None:
    schedule_id = yard.add(overlap="cancel")
    yard.due(schedule_id)
    yard.pass_time(schedule_id)
    assert yard.duty.run(), "the run is submitted, and the one before is not cancelled yet"
    old = yard.jobs()[0].id
    yard.db.cancel(old)
    write(yard.store, requests.act, "delete", old, caller=SERVICE)
    yard.run()
    assert len(yard.jobs()) == 1


def test_a_schedule_ends_with_its_last_time(yard: Yard) -> None:
    schedule_id = yard.add("0 0 1 1 *", until="2200-01-01T00:00:00Z")
    last = {"cron": "0 0 1 1 *", "timezone": "UTC", "overlap": "skip", "until": "2020-01-01T00:00:00Z"}
    yard.db.write(
        lambda session: session.execute(update(Schedule).where(Schedule.id == schedule_id).values(schedule=last))
    )
    yard.due(schedule_id)
    found = yard.get(schedule_id)
    assert (found.state, found.next_at, len(yard.jobs())) == (ScheduleState.ENDED, None, 1)
    with pytest.raises(InvalidSpec):
        yard.change(schedule_id, paused=False)
    assert yard.change(schedule_id, schedule="0 3 * * *").state == ScheduleState.ACTIVE


def test_a_disabled_owners_runs_are_refused_and_the_schedule_is_paused_after_some(
    yard: Yard, approved: Approved
) -> None:
    schedule_id = yard.add()
    yard.db.write(lambda session: users.change(session, "ada", disabled=True, caller=SERVICE))
    for _ in range(MOST_REFUSED - 1):
        yard.due(schedule_id)
    found = yard.get(schedule_id)
    assert (found.state, found.refused) == (ScheduleState.ACTIVE, MOST_REFUSED - 1)
    assert (found.last_error or {})["code"] == "owner_disabled"
    yard.due(schedule_id)
    found = yard.get(schedule_id)
    assert (found.state, found.next_at) == (ScheduleState.PAUSED, None)
    assert found.reason_message == approved("reason_message", most_refused=MOST_REFUSED)
    yard.db.write(lambda session: users.change(session, "ada", disabled=False, caller=SERVICE))
    yard.change(schedule_id, paused=False)
    assert yard.get(schedule_id).refused == 0
    yard.due(schedule_id)
    assert (len(yard.jobs()), yard.get(schedule_id).last_error) == (1, None)


def test_a_full_quota_is_noted_and_the_next_run_tries_again(yard: Yard) -> None:
    schedule_id = yard.add(overlap="cancel")
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.QUEUED: 0}, caller=SERVICE))
    yard.due(schedule_id)
    assert ((yard.get(schedule_id).last_error or {})["code"], yard.jobs()) == ("quota_exceeded", [])
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.QUEUED: 1}, caller=SERVICE))
    yard.due(schedule_id)
    assert (len(yard.jobs()), yard.get(schedule_id).refused) == (1, 0)


def test_what_the_owner_may_not_read_any_more_is_refused_at_each_run(yard: Yard) -> None:
    job = {**SCRIPT, "init_from": f"job_{'0' * 32}/best"}
    schedule_id = yard.add(job=job)
    yard.due(schedule_id)
    error = yard.get(schedule_id).last_error or {}
    assert (error["code"], yard.jobs()) == ("invalid_spec", [])
    assert "init_from" in error["message"]


def test_a_refused_run_cancels_none(yard: Yard) -> None:
    schedule_id = yard.add(overlap="cancel")
    yard.due(schedule_id)
    yard.db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.QUEUED: 1}, caller=SERVICE))
    yard.due(schedule_id)
    assert [job.state for job in yard.jobs()] == [JobState.QUEUED]


def test_a_paused_schedule_submits_nothing_and_makes_up_for_nothing(yard: Yard) -> None:
    schedule_id = yard.add()
    assert yard.change(schedule_id, paused=True).next_at is None
    yard.run()
    now = yard.db.read(lambda session: session.scalars(select(now_us())).one())
    yard.change(schedule_id, paused=False)
    assert (yard.get(schedule_id).next_at or 0) > now
    yard.run()
    assert yard.jobs() == []


def test_a_changed_schedule_has_its_new_times(yard: Yard) -> None:
    schedule_id = yard.add("0 0 1 1 *")
    before = yard.get(schedule_id).next_at or 0
    changed = yard.change(schedule_id, schedule={"cron": "* * * * *", "overlap": "queue"})
    assert (yard.get(schedule_id).next_at or 0) < before
    assert changed.schedule.overlap == "queue"
    with pytest.raises(InvalidSpec):
        yard.change(schedule_id, schedule="0 0 30 2 *")
    assert yard.get(schedule_id).schedule["cron"] == "* * * * *"


def test_only_the_owner_and_administrators_change_a_schedule(yard: Yard) -> None:
    private = yard.add()
    shared = yard.add(job={**SCRIPT, "visibility": "team"})
    with pytest.raises(NotFound):
        yard.change(private, caller=BOB, paused=True)
    with pytest.raises(Forbidden):
        yard.change(shared, caller=BOB, paused=True)
    with pytest.raises(Forbidden):
        write(yard.store, schedules.remove, shared, caller=BOB)
    assert yard.change(private, caller=SERVICE, paused=True).state == ScheduleState.PAUSED
    listed = read(yard.store, schedules.list_schedules, caller=BOB, owner=None, limit=10)
    assert [each.id for each in listed.items] == [shared]


def test_a_deleted_schedule_leaves_its_runs(yard: Yard) -> None:
    schedule_id = yard.add()
    yard.due(schedule_id)
    write(yard.store, schedules.remove, schedule_id, caller=ADA)
    yard.run()
    assert [job.schedule_id for job in yard.jobs()] == [schedule_id]
    with pytest.raises(NotFound):
        read(yard.store, schedules.find, schedule_id, caller=ADA)


def test_a_schedule_that_cannot_be_read_holds_up_no_other(yard: Yard) -> None:
    broken, sound = yard.add(), yard.add()
    change = update(Schedule).where(Schedule.id == broken).values(schedule={"cron": "by a newer program"})
    yard.db.write(lambda session: session.execute(change))
    yard.pass_time(broken, 2 * MINUTE_US)
    yard.due(sound)
    (job,) = yard.jobs()
    assert job.schedule_id == sound


@quick_on_sqlite
def test_the_owner_sees_that_what_is_due_fails(yard: Yard) -> None:
    broken = yard.add()
    change = update(Schedule).where(Schedule.id == broken).values(schedule={"cron": "by a newer program"})
    yard.db.write(lambda session: session.execute(change))

    def told() -> dict[str, Any]:
        yard.pass_time(broken, 2 * MINUTE_US)
        yard.run()
        found = yard.db.read(lambda session: session.get_one(Schedule, broken).last_error)
        assert found is not None
        return found

    first = told()
    assert (first["code"], first["message"][:40]) == ("internal", "the run could not be submitted: the log ")
    assert told() == first  # a run each two seconds writes nothing


def test_two_controllers_submit_a_run_once(yard: Yard) -> None:
    schedule_id = yard.add(overlap="cancel")
    for runs in range(1, 6):
        yard.pass_time(schedule_id)
        done = run_together(*[Schedules(yard.store).run] * 4)
        assert not [each for each in done if isinstance(each, Exception)]
        yard.run()
        assert len(yard.jobs()) == runs
    assert len({job.due_at for job in yard.jobs()}) == len(yard.jobs())
    assert sum(job.state == JobState.QUEUED for job in yard.jobs()) == 1


def run_once(database_url: str) -> None:
    """Does one pass of a controller."""
    Schedules(store_on(Database(database_url))).run()


@quick_on_sqlite
@pytest.mark.parametrize(("point", "runs"), POINTS.items())
def test_a_controller_that_is_killed_around_its_commit_submits_a_run_once(
    yard: Yard, database_url: str, tmp_path: Path, point: str, runs: int
) -> None:
    schedule_id = yard.add(overlap="cancel")
    yard.due(schedule_id)
    yard.pass_time(schedule_id)
    killed = ArmedProcess(run_once, database_url, plan=f"{point}=kill", log=tmp_path / "failpoints.log")
    assert killed.wait() == -signal.SIGKILL
    assert len(yard.jobs()) == 1 + runs
    yard.run()
    assert [job.state for job in yard.jobs()] == [JobState.CANCELLED, JobState.QUEUED]


def test_a_bundle_that_a_schedule_names_is_kept(yard: Yard) -> None:
    yard.db.write(lambda session: bundles.add(session, "ada", SHA256, size=1, files=1))
    schedule_id = yard.add(job={**SCRIPT, "config": {"code": f"bundle:sha256:{SHA256}"}})
    with pytest.raises(Conflict, match=schedule_id):
        yard.db.write(lambda session: bundles.remove(session, "ada", SHA256))
    assert yard.db.write(_remove_unused) == []
    write(yard.store, schedules.remove, schedule_id, caller=ADA)
    assert yard.db.write(_remove_unused) == [SHA256]


def _remove_unused(session: Session) -> list[str]:
    return bundles.remove_unused(session, age=timedelta(microseconds=-1), limit=10)


def test_an_owner_has_few_schedules(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.schedules.schedules.MOST", 2)
    yard.add()
    yard.add()
    with pytest.raises(Conflict, match="ada has 2 schedules"):
        yard.add()
    yard.add(caller=BOB)


def test_requests_at_the_same_moment_add_no_more_schedules_than_an_owner_may_have(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.schedules.schedules.MOST", 2)
    yard.add()
    results = run_together(*[yard.add] * 4)
    assert sum(isinstance(result, Conflict) for result in results) == 3


def test_requests_with_one_key_at_once_add_one_schedule(yard: Yard) -> None:
    spec = parse_spec({**SCRIPT, "schedule": "0 3 * * *"})
    assert spec.schedule is not None
    new = NewSchedule(spec, spec.schedule, ADA, "private", KeyedRequest("ada", "once", "f" * 64))
    added = run_together(*[lambda: write(yard.store, schedules.add, new)] * 4)
    assert not [each for each in added if isinstance(each, Exception)]
    assert len(read(yard.store, schedules.list_schedules, caller=ADA, owner=None, limit=10).items) == 1


def test_a_pass_with_nothing_due_reads_once(yard: Yard, database: Database) -> None:
    for _ in range(3):
        yard.add()
    with recorded_statements(database) as statements:
        assert not yard.duty.run()
    assert len([each for each in statements if "schedules" in each]) == 1
    assert yard.db.read(lambda session: session.scalar(select(func.count()).select_from(Job))) == 0
