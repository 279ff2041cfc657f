"""Pools in the store: who serves one, what a job in it holds, and what its time is."""

from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from scheduling.snapshot import Snapshot
from store.attempts import claim as claims
from store.attempts import lease as leases
from store.attempts.facts import LEASE, Begun, Claim, NodeHeld
from store.cluster import shown_workers as worker_facts
from store.cluster import workers
from store.db.database import now_us
from store.jobs import requests
from store.jobs.facts import AT_ONCE
from store.output.facts import Batch
from store.queue import credits, placement, usage
from store.queue.line_facts import Bucket
from store.tables import Attempt, Worker
from store.team import quotas, users
from store.team.callers import SERVICE
from store.worker.records import Prepared
from store.worker.verbs import WorkerStore
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import write
from tests.store import pools
from tests.store.fixture import StoreFixture, placement_on, run_together, store_on
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Conflict, StaleClaim
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Resource, Role

RUNS = Reason("running", "4 processes run")
_HOUR = timedelta(hours=1)


def unseen(db: StoreFixture, worker_id: str) -> None:
    """Lets the last heartbeat of the pool's daemon, and the leases of its attempts, be too long ago."""
    earlier = now_us() - int(LEASE.total_seconds() + 1) * 1_000_000
    db.write(lambda session: session.execute(update(Worker).where(Worker.id == worker_id).values(seen_at=earlier)))
    late = update(Attempt).where(Attempt.worker_id == worker_id).values(lease_until=now_us() - 1)
    db.write(lambda session: session.execute(late))


def worker_of(db: StoreFixture, claim: Claim) -> WorkerStore:
    return WorkerStore(store_on(db.database), claim.worker_id)


def begun(db: StoreFixture, claim: Claim, *nodes: NodeHeld) -> None:
    worker_of(db, claim).change(claim, Begun(running=RUNS, nodes=nodes))


def shift(db: StoreFixture, claim: Claim, by: timedelta, *columns: str) -> None:
    """Sets times of the attempt to earlier ones."""
    us = by // timedelta(microseconds=1)
    earlier = {name: getattr(Attempt, name) - us for name in columns}
    db.write(lambda session: session.execute(update(Attempt).where(Attempt.id == claim.attempt_id).values(**earlier)))


def now_of(session: Session) -> int:
    return session.execute(select(now_us())).scalar_one()


def test_a_job_in_a_pool_holds_what_it_asks_for_from_the_claim_on(db: StoreFixture, approved: Approved) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker, nodes=2, devices=2)
    job = db.job(claim.job_id)
    assert (job.state, job.devices, job.reason_message) == (JobState.STARTING, [], approved("reason_message"))
    assert db.attempt(claim).pool_devices == 4
    assert db.allocations() == []
    facts = worker_of(db, claim).read(claim)
    assert (facts.in_pool, facts.world_size, facts.devices, facts.age) == (True, 4, (), timedelta(0))


def test_quotas_count_it_once_whatever_its_nodes_tell(db: StoreFixture) -> None:
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    limits = {Resource.DEVICES: 6}
    db.write(lambda session: quotas.set_limits(session, "user", "ada", limits, caller=SERVICE))
    worker = pools.serve(db)
    claim = pools.given(db, worker, nodes=2, devices=2)
    for told in (pools.nodes("n1", "n2"), pools.nodes("n1", devices=1)):
        assert db.read(lambda session: quotas.count_usage(session, "ada"))[Resource.DEVICES] == 4
        begun(db, claim, *told)
    assert db.read(lambda session: quotas.count_usage(session, "ada"))[Resource.DEVICES] == 4
    assert pools.give(db, pools.submit(db, nodes=2, devices=2), worker) is None, "6 devices are the limit"
    assert db.claim(db.submit(resources={"devices_per_node": 3}), db.worker(), "a", "b", "c") is None
    assert pools.give(db, pools.submit(db, nodes=1, devices=2), worker) is not None
    db.end(claim, EndReason.PREEMPTED)
    assert db.read(lambda session: quotas.count_usage(session, "ada"))[Resource.DEVICES] == 2


def test_devices_are_known_when_it_runs(db: StoreFixture) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    for _ in range(2):  # the answer to the first call was lost
        begun(db, claim, *pools.nodes("n1", "n2"))
    job = db.job(claim.job_id)
    assert (job.state, db.moves(job.id)) == (JobState.RUNNING, ["queued", "starting", "running"])
    assert [(held["node"], held["host"], held["uuid"]) for held in job.devices] == [
        (0, "n1", "cpu-n1-7-0"),
        (0, "n1", "cpu-n1-7-1"),
        (1, "n2", "cpu-n2-7-0"),
        (1, "n2", "cpu-n2-7-1"),
    ]
    assert {held["worker"] for held in job.devices} == {worker}
    assert [(row.node_rank, row.device, row.released_at) for row in db.allocations()] == [
        (held["node"], held["uuid"], None) for held in job.devices
    ]
    assert worker_of(db, claim).read(claim).devices == ()


def test_a_node_that_tells_anything_changes_no_more_than_the_jobs_own_devices(db: StoreFixture) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker, nodes=2, devices=1)
    strange = DeviceReport(index=2**62, uuid="\x00\u202e\ud800" + "x" * 1000, name="\n" * 1000, kind="cuda")
    host = NodeHeld("h\x1b[31m\udfff" * 1000, [strange] * 50)
    begun(db, claim, *[host] * 50)
    held = db.job(claim.job_id).devices
    assert [each["node"] for each in held] == [0, 1], "as many as it asked for"
    assert all(each["host"].isprintable() and len(each["host"]) < 256 and each["uuid"].isprintable() for each in held)
    assert len(db.allocations()) == 1, "one device, told twice"
    assert db.end(claim, EndReason.COMPLETED) is JobState.SUCCEEDED


@quick_on_sqlite
def test_a_device_that_the_cluster_gives_away_is_the_next_jobs(db: StoreFixture) -> None:
    """The end of the job before may be stored later than the start of the next one."""
    worker = pools.serve(db)
    first, second = pools.given(db, worker), pools.given(db, worker)
    begun(db, first, *pools.nodes("n1", "n2"))
    begun(db, second, *pools.nodes("n2", "n3"))
    assert {device for (_, device), job_id in db.held().items() if job_id == second.job_id} == {
        f"cpu-{host}-7-{index}" for host in ("n2", "n3") for index in (0, 1)
    }
    assert db.end(first, EndReason.COMPLETED) is JobState.SUCCEEDED
    assert db.end(second, EndReason.COMPLETED) is JobState.SUCCEEDED
    assert db.held() == {}


def test_neither_a_host_nor_a_pool_takes_the_others_jobs(db: StoreFixture) -> None:
    pool, host = pools.serve(db), db.worker()
    in_pool, on_host = pools.submit(db), db.submit()
    assert db.claim(in_pool, host, "a") is None
    assert pools.give(db, on_host, pool) is None
    assert pools.give(db, in_pool, host, holder=None) is None
    with_devices = placement_on(pool, "a")
    assert db.write(lambda session: claims.claim(session, in_pool, with_devices, holder=pools.HOLDER)) is None
    other = pools.serve(db, "other")
    assert pools.give(db, in_pool, other) is None
    db.drain(pool)
    assert pools.give(db, in_pool, pool) is None
    db.drain(pool, drain=False)
    assert pools.give(db, in_pool, pool) is not None


@quick_on_sqlite
def test_time_counts_from_when_it_runs(db: StoreFixture) -> None:
    worker = pools.serve(db)
    waited = pools.given(db, worker, time_limit="90m")
    shift(db, waited, 5 * _HOUR, "started_at")
    assert worker_of(db, waited).read(waited).age == timedelta(0)
    assert db.end(waited, EndReason.KILLED) is JobState.QUEUED, "its time limit is not used up"
    assert db.job(waited.job_id).ran_us == 0
    assert db.read(lambda session: usage.used_seconds(session, now=now_of(session)))["ada", "cpu"] == 0
    ran = pools.given(db, worker, time_limit="90m", max_restarts=5)
    begun(db, ran, *pools.nodes("n1", "n2"))
    shift(db, ran, 5 * _HOUR, "started_at")
    shift(db, ran, _HOUR, "running_at")
    assert _HOUR <= worker_of(db, ran).read(ran).age < 2 * _HOUR
    used = db.read(lambda session: usage.used_seconds(session, now=now_of(session)))
    assert used["ada", "cpu"] == pytest.approx(4 * 3600, rel=0.05), "of four devices, an hour"
    assert db.end(ran, EndReason.KILLED) is JobState.QUEUED
    assert db.job(ran.job_id).ran_us == pytest.approx(3.6e9, rel=0.05)
    after = db.read(lambda session: usage.used_seconds(session, now=now_of(session)))
    assert after["ada", "cpu"] == pytest.approx(used["ada", "cpu"], rel=0.01), "what it has used, is used"


def test_a_cluster_may_preempt(db: StoreFixture) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    assert db.end(claim, EndReason.PREEMPTED, "Slurm has preempted it", asked=False) is JobState.QUEUED
    assert db.attempt(claim).end_reason == EndReason.PREEMPTED
    assert db.job(claim.job_id).restarts == 0
    again = pools.give(db, claim.job_id, worker)
    assert again is not None
    db.end(again, EndReason.CANCELLED, "scancel", asked=False)
    assert db.attempt(again).end_reason == EndReason.WORKER_LOST, "nobody here has cancelled it"


def test_an_expired_lease_ends_nothing_in_a_pool(db: StoreFixture) -> None:
    claim = pools.given(db, pools.serve(db))
    db.expire(claim)
    assert db.read(leases.list_expired) == []
    assert not db.rescue(claim)
    assert db.job(claim.job_id).state == JobState.STARTING


def test_one_daemon_serves_a_pool(db: StoreFixture, approved: Approved) -> None:
    worker = pools.serve(db)
    with pytest.raises(Conflict) as raised:
        pools.serve(db, worker_id=worker, holder="standby/boot-2")
    assert str(raised.value) == approved("message")
    with pytest.raises(Conflict, match="from another data directory"):
        pools.serve(db, holder="stranger/boot-3")
    assert pools.serve(db, worker_id=worker) == worker, "it was started again, and does not wait for itself"
    db.write(lambda session: workers.release_pool(session, worker, holder="standby/boot-2"))
    with pytest.raises(Conflict):
        pools.serve(db, worker_id=worker, holder="standby/boot-2")
    db.write(lambda session: workers.release_pool(session, worker, holder=pools.HOLDER))
    assert pools.serve(db, worker_id=worker, holder="standby/boot-2") == worker


def test_a_host_of_the_pools_name_gets_another(db: StoreFixture) -> None:
    pools.serve(db, "box")
    host = db.worker("box")
    assert {worker.name for worker, _ in db.read(workers.list_all) if worker.id == host} == {"box-2"}


def test_after_a_takeover_the_daemon_before_writes_nothing(db: StoreFixture) -> None:
    worker = pools.serve(db)
    old = pools.given(db, worker)
    store = worker_of(db, old)
    waiting = pools.submit(db)
    db.record(old, seq=0)
    unseen(db, worker)
    pools.serve(db, worker_id=worker, holder="standby/boot-2")
    (new,) = db.read(lambda session: leases.list_open(session, worker))
    assert (new.attempt_id, new.holder) == (old.attempt_id, "standby/boot-2")
    before = db.everything()
    report = ExitReport(reason=EndReason.COMPLETED)
    for change in (
        lambda: store.append(old, Batch(offsets={}), seq=1),
        lambda: store.append(old, Batch(offsets={}), seq=0),
        lambda: store.change(old, Begun(launcher={"name": "ty-old"})),
        lambda: store.change(old, Begun(running=RUNS, nodes=pools.nodes("n1", "n2"))),
        lambda: store.change(old, Prepared(start_step=3)),
        lambda: store.change(old, Reason("waiting_in_slurm", "Priority")),
        lambda: store.end(old, report),
        lambda: store.read(old),
        lambda: store.read_wanted(old),
    ):
        with pytest.raises(StaleClaim):
            change()
    assert pools.give(db, waiting, worker) is None
    assert not pools.beat(db, worker)
    ids = [old.attempt_id]
    assert db.write(lambda session: leases.renew(session, worker, ids, holder=pools.HOLDER)) == set()
    assert db.read(lambda session: leases.list_open(session, worker, holder=pools.HOLDER)) == []
    assert db.everything() == before
    db.record(new, seq=1)
    assert db.write(lambda session: leases.renew(session, worker, ids, holder="standby/boot-2")) == {*ids}
    assert pools.give(db, waiting, worker, holder="standby/boot-2") is not None


def test_a_daemon_whose_lease_expired_goes_on_if_nobody_took_over(db: StoreFixture) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    unseen(db, worker)
    db.record(claim, seq=0)
    ids = [claim.attempt_id]
    assert db.write(lambda session: leases.renew(session, worker, ids, holder=pools.HOLDER)) == {*ids}
    assert pools.beat(db, worker, state="DOWN")
    facts = db.read(lambda session: worker_facts.find_worker(session, worker))
    assert facts.alive and facts.pool is not None
    assert (facts.pool.report["state"], facts.pool.waiting, facts.pool.running) == ("DOWN", 1, 0)
    begun(db, claim, *pools.nodes("n1", "n2"))
    (listed,) = db.read(lambda session: worker_facts.list_workers(session, limit=9).items)
    assert listed.pool is not None
    assert (listed.pool.waiting, listed.pool.running) == (0, 1)


@pytest.mark.parametrize(
    ("launcher", "says"),
    [
        ({"engine": "slurm", "name": "ty-a1-b2"}, "`scancel --name=ty-a1-b2` ends it"),
        ({"engine": "slurm", "name": "x; rm -rf /"}, "no submission"),
        ({"name": ["ty"]}, "no submission"),
        (None, "no submission"),
    ],
)
def test_a_forced_cancel_ends_the_row_once_no_daemon_serves_the_pool(
    db: StoreFixture, launcher: dict[str, object] | None, says: str, approved: Approved
) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    store = store_on(db.database)
    if launcher is not None:
        worker_of(db, claim).change(claim, Begun(launcher=launcher))
    write(store, requests.act, "cancel", claim.job_id, caller=SERVICE, grace=AT_ONCE)
    assert db.job(claim.job_id).state == JobState.STARTING, "its daemon carries the request out"
    unseen(db, worker)
    write(store, requests.act, "cancel", claim.job_id, caller=SERVICE)
    assert db.job(claim.job_id).state == JobState.STARTING, "it waits for the daemon"
    write(store, requests.act, "cancel", claim.job_id, caller=SERVICE, grace=AT_ONCE)
    job = db.job(claim.job_id)
    assert job.state == JobState.CANCELLED
    assert says in job.reason_message and job.reason_message == approved.of_row("reason_message")
    assert [event.data["text"] for event in db.events(job.id) if event.type == "message"][-1] == job.reason_message
    with pytest.raises(StaleClaim):
        db.record(claim, seq=0)
    write(store, requests.act, "cancel", claim.job_id, caller=SERVICE, grace=AT_ONCE)


def test_a_queued_job_of_a_pool_is_cancelled_as_any_other(db: StoreFixture) -> None:
    pools.serve(db)
    job_id = pools.submit(db)
    write(store_on(db.database), requests.act, "cancel", job_id, caller=SERVICE, grace=AT_ONCE)
    assert db.job(job_id).state == JobState.CANCELLED


def test_pause_and_resume_work_as_on_a_host(db: StoreFixture) -> None:
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    db.pause(claim.job_id)
    assert db.end(claim, EndReason.PAUSED) is JobState.PAUSED
    db.resume(claim.job_id)
    assert db.job(claim.job_id).state == JobState.QUEUED
    again = pools.give(db, claim.job_id, worker)
    assert again is not None and again.number == 2


def planned(db: StoreFixture, here: str) -> tuple[Snapshot, list[str]]:
    """Returns what a daemon reads, and the jobs that its plan gives to pools."""
    found = db.read(lambda session: placement.read_plan(session, {here: []}))
    assert found is not None
    snapshot, plan = found
    return snapshot, [start.job.id for start in plan.starts if not start.placement.devices]


def test_all_workers_plan_alike_what_a_pool_gets(db: StoreFixture) -> None:
    worker, host = pools.serve(db, ahead=2), db.worker()
    jobs = [pools.submit(db) for _ in range(4)]
    snapshot, given = planned(db, worker)
    assert given == jobs[:2], "in their order, as many as may wait ahead"
    assert planned(db, host)[1] == given
    assert [one.id for one in snapshot.hosts] == [host]
    claim = pools.give(db, jobs[0], worker)
    assert claim is not None
    snapshot, given = planned(db, worker)
    assert given == jobs[1:2]
    assert (snapshot.pools[0].waiting, snapshot.running) == ({"ada": 1}, ()), "it waits in the cluster's queue"
    begun(db, claim, *pools.nodes("n1", "n2"))
    shift(db, claim, 5 * _HOUR, "started_at")
    snapshot, given = planned(db, worker)
    assert given == jobs[1:3]
    (running,) = snapshot.running
    assert running.since == db.attempt(claim).running_at
    assert snapshot.pools[0].waiting == {}


def test_a_pool_that_is_away_is_no_place(db: StoreFixture, approved: Approved) -> None:
    worker, host = pools.serve(db), db.worker()
    pools.submit(db)
    unseen(db, worker)
    snapshot, given = planned(db, host)
    assert (snapshot.pools, given) == ((), [])
    assert len(planned(db, worker)[1]) == 1, "who plans for it is there"
    assert pools.beat(db, worker, obstacle="slurmctld \x1b[31mdoes not answer" + "!" * 1000 + "\nslurm_load_jobs error")
    snapshot, given = planned(db, host)
    (obstacle,) = [str(pool.obstacle) for pool in snapshot.pools]
    assert obstacle == approved("obstacle") and (len(obstacle), given) == (300, [])


def test_a_report_of_a_newer_program_stops_no_plan(db: StoreFixture) -> None:
    pool, host = pools.serve(db), db.worker()
    db.submit()
    db.write(lambda session: session.execute(update(Worker).where(Worker.id == pool).values(pool={"kind": "tpu"})))
    assert planned(db, host)[0].pools == ()


def test_the_order_of_the_line_counts_devices_of_pools(db: StoreFixture) -> None:
    """Otherwise who has used anything at all would have no credit where all devices are in pools."""
    worker = pools.serve(db)
    claim = pools.given(db, worker)
    begun(db, claim, *pools.nodes("n1", "n2"))
    shift(db, claim, _HOUR, "running_at")
    db.end(claim, EndReason.COMPLETED)
    job = db.job(pools.submit(db))
    buckets = [Bucket(job.owner, job.device_request, job.priority)]
    found = db.read(lambda session: credits.credits(session, buckets))
    assert 0 < found.of(buckets[0]) < found.default


def test_a_takeover_at_the_same_time_as_writes_of_the_daemon_before(db: StoreFixture) -> None:
    worker = pools.serve(db, holder="head/boot-0")
    for number in range(4):
        before, after = (f"head/boot-{number + more}" for more in (0, 1))
        old = pools.give(db, pools.submit(db), worker, holder=before)
        waiting = pools.submit(db)
        assert old is not None
        unseen(db, worker)
        wrote, claimed, taken = run_together(
            partial(db.record, old, seq=0),
            partial(pools.give, db, waiting, worker, holder=before),
            partial(pools.serve, db, worker_id=worker, holder=after),
        )
        assert taken == worker
        adopted = db.read(lambda session: leases.list_open(session, worker))
        assert {claim.holder for claim in adopted} == {after}, "nothing is left to the one before"
        assert (waiting in {claim.job_id for claim in adopted}) == isinstance(claimed, Claim)
        assert (db.attempt(old).relay_seq, type(wrote)) in {(1, type(None)), (0, StaleClaim)}
        for claim in adopted:
            db.end(claim, EndReason.DATA_ERROR)
        if not isinstance(claimed, Claim):
            db.cancel(waiting)
