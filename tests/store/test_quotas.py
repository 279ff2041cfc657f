"""Quotas are never exceeded: by claims, by submissions, and by what happens at the same time."""

from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from store import housekeeping as cleanup
from store.attempts.facts import Claim
from store.jobs import deletion, edits
from store.jobs import submit as submission
from store.jobs.submission import Submission
from store.output.facts import MetricPoint, NewEvent, NewLines, TrimLimits
from store.tables import User
from store.team import quotas, users
from store.team.callers import SERVICE, Caller
from store.team.limits import find_limits
from tests.approved import Approved
from tests.databases import quick_on_postgresql, quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint, run_together, store_on
from torchyard.contract.errors import QuotaExceeded
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Resource, Role

ADA = Caller("ada", Role.MEMBER)


@pytest.fixture
def team(db: StoreFixture) -> StoreFixture:
    """A store with the members ada and bob."""
    for name in ("ada", "bob"):
        db.write(lambda session, name=name: users.add(session, name, Role.MEMBER, caller=SERVICE))
    return db


def limit(db: StoreFixture, name: str, *, kind: quotas.Kind = "user", **limits: int | None) -> None:
    found = {Resource(resource): value for resource, value in limits.items()}
    db.write(lambda session: quotas.set_limits(session, kind, name, found, caller=SERVICE))


def limits(db: StoreFixture, name: str) -> dict[Resource, int]:
    return db.read(lambda session: find_limits(session, name))


def submit(db: StoreFixture, owner: str = "ada", *, devices: int = 1, priority: int = 0) -> str:
    """Submits a job as the API does. Raises QuotaExceeded."""
    with db.database.write() as session:
        spec = db.spec(resources={"devices_per_node": devices}, priority=priority)
        return submission.submit(session, Submission(spec, Caller(owner, Role.MEMBER), "private")).job.id


def test_a_users_limit_replaces_that_of_the_role(team: StoreFixture) -> None:
    assert limits(team, "ada") == {}
    limit(team, "member", kind="role", devices=4, queued=10)
    limit(team, "ada", devices=8)
    assert limits(team, "ada") == {Resource.DEVICES: 8, Resource.QUEUED: 10}
    assert limits(team, "bob") == {Resource.DEVICES: 4, Resource.QUEUED: 10}
    limit(team, "ada", queued=None)
    assert limits(team, "ada") == {Resource.DEVICES: 8}, "null is unlimited"
    team.write(lambda session: quotas.clear(session, "user", "ada", Resource, caller=SERVICE))
    assert limits(team, "ada") == limits(team, "bob")
    assert limits(team, "admin") == limits(team, "nobody") == {}


@quick_on_sqlite
def test_shares_are_those_of_a_thousand_users_or_their_role(team: StoreFixture) -> None:
    names = [f"user-{number}" for number in range(1000)]
    team.write(lambda session: session.add_all(User(name=name, role=Role.VIEWER) for name in names))
    limit(team, "ada", share=200, devices=1)
    limit(team, "viewer", kind="role", share=50)
    limit(team, "user-7", share=10_000)
    found = team.read(lambda session: quotas.shares(session, ["ada", "bob", "nobody", *names]))
    assert found == {"ada": 200, **dict.fromkeys(names, 50), "user-7": 10_000}


@quick_on_postgresql
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wanted=st.lists(st.integers(1, 3), min_size=2, max_size=6),
    devices=st.integers(1, 5),
    running=st.integers(1, 4),
)
def test_concurrent_claims_never_exceed_a_quota(
    team: StoreFixture, wanted: list[int], devices: int, running: int
) -> None:
    limit(team, "ada", devices=devices, running=running)
    claims = [claim_of(team, team.submit(owner="ada"), team.worker(), count) for count in wanted]
    free = claim_of(team, team.submit(owner="bob"), team.worker(), 9)
    *results, others = run_together(*claims, free)
    used = team.read(lambda session: quotas.count_usage(session, "ada"))
    for result in (*results, others):
        if isinstance(result, Claim):
            team.end(result, EndReason.WORKER_LOST)
    assert all(isinstance(result, Claim) or result is None for result in results), results
    assert isinstance(others, Claim), "another user's job is not concerned"
    taken = [count for count, result in zip(wanted, results, strict=True) if result is not None]
    refused = [count for count, result in zip(wanted, results, strict=True) if result is None]
    assert (used[Resource.DEVICES], used[Resource.RUNNING]) == (sum(taken), len(taken))
    assert sum(taken) <= devices
    assert len(taken) <= running
    assert len(taken) == running or all(sum(taken) + count > devices for count in refused), "none waits needlessly"


def claim_of(db: StoreFixture, job_id: str, worker: str, count: int) -> Callable[[], Claim | None]:
    slots = [f"slot-{number}" for number in range(count)]
    return lambda: db.claim(job_id, worker, *slots)


@quick_on_postgresql
def test_concurrent_submissions_never_exceed_the_queued_jobs(team: StoreFixture) -> None:
    limit(team, "ada", queued=3)
    results = run_together(*(lambda: submit(team) for _ in range(6)))
    assert len([job for job in results if isinstance(job, str)]) == 3, results
    assert all(isinstance(other, (str, QuotaExceeded)) for other in results), results
    assert submit(team, "bob")


@quick_on_postgresql
def test_concurrent_changes_of_a_limit_are_all_accepted(team: StoreFixture) -> None:
    assert run_together(*(partial(limit, team, "ada", running=number) for number in range(6))) == [None] * 6
    assert limits(team, "ada").keys() == {Resource.RUNNING}


def test_a_paused_job_counts_as_queued_and_can_always_be_resumed(team: StoreFixture, approved: Approved) -> None:
    limit(team, "ada", queued=1)
    paused = submit(team)
    team.pause(paused)
    with pytest.raises(QuotaExceeded) as raised:
        submit(team)
    assert str(raised.value) == approved("message")
    team.resume(paused)
    assert team.job(paused).state == "queued"


def test_a_job_that_returns_to_the_queue_by_itself_is_never_refused(team: StoreFixture) -> None:
    limit(team, "ada", queued=1)
    claim = team.running(submit(team), team.worker())
    submit(team)
    assert team.end(claim, EndReason.WORKER_LOST) == "queued"


def test_the_priority_of_a_job_has_a_ceiling(team: StoreFixture, approved: Approved) -> None:
    limit(team, "ada", priority=5)
    job_id = submit(team, priority=5)
    with pytest.raises(QuotaExceeded) as raised:
        submit(team, priority=6)
    assert str(raised.value) == approved("message")
    raised = parse_patch({"priority": 6})
    with pytest.raises(QuotaExceeded):
        team.write(lambda session: edits.change(session, job_id, raised, ADA))
    assert team.write(lambda session: edits.change(session, job_id, raised)).priority == 6, "by an administrator"


def test_a_job_that_could_never_start_is_refused(team: StoreFixture, approved: Approved) -> None:
    limit(team, "ada", devices=2)
    with pytest.raises(QuotaExceeded) as raised:
        submit(team, devices=3)
    assert str(raised.value) == approved("message")


def test_submissions_are_refused_while_checkpoints_take_too_much(team: StoreFixture, approved: Approved) -> None:
    limit(team, "ada", stored_bytes=2)
    claim = team.running(submit(team), team.worker())
    team.record(claim, seq=0, checkpoints=[checkpoint(f"step-{step}", step=step) for step in (1, 2)])
    with pytest.raises(QuotaExceeded) as raised:
        submit(team)
    assert str(raised.value) == approved("message")
    assert submit(team, "bob")


def test_points_and_lines_count_as_stored_until_they_are_trimmed_or_deleted(
    team: StoreFixture, approved: Approved
) -> None:
    claim = team.running(submit(team), team.worker())
    said = NewEvent("message", {"level": "info", "text": "text"}, 1, limited=True)
    found = [MetricPoint(key, 1, 0.0, 1) for key in ("a", "b")]
    team.record(claim, seq=0, points=found, lines=[NewLines(0, "stdout", ["line"])], events=[said])
    assert stored(team) == 2 * 24 + 5 + 104
    limit(team, "ada", stored_bytes=157)
    with pytest.raises(QuotaExceeded) as raised:
        submit(team)
    assert str(raised.value) == approved("message")
    team.end(claim, EndReason.COMPLETED)
    for _ in cleanup.trim_finished_jobs(store_on(team.database), TrimLimits(log_bytes=0, event_bytes=0)):
        pass
    assert stored(team) == 2 * 24
    team.write(lambda session: deletion.delete_job(session, claim.job_id))
    assert stored(team) == 0


def stored(db: StoreFixture) -> int:
    return db.read(lambda session: quotas.stored_bytes(session, "ada"))


def test_an_owner_who_is_no_user_has_no_limits(db: StoreFixture) -> None:
    limit(db, "member", kind="role", devices=0, running=0, queued=0)
    assert db.running(submit(db, "grace"), db.worker())
