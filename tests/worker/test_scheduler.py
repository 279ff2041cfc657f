"""One pass over the queue, by one worker and by several workers on one database."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from scheduling.snapshot import OVERDUE_AFTER
from store.jobs import jobs
from store.queue.announcing import Queue
from store.team import quotas, users
from store.team.callers import SERVICE
from tests import line, servers
from tests.approved import Approved
from tests.databases import on_both, quick_on_sqlite
from tests.store.fixture import a_service, recorded_statements, run_together
from tests.worker.schedulers import SchedulersFixture, gpu, slot
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Resource, Role


@quick_on_sqlite
def test_a_worker_preempts_nothing_for_a_job_that_another_worker_preempts_for(schedulers: SchedulersFixture) -> None:
    one, two = schedulers.scheduler("box-a", slot(0)), schedulers.scheduler("box-b", slot(0))
    one.start_job("cpu-0", preemptible=True)
    victim = two.start_job("cpu-0", preemptible=True)
    preemptor = schedulers.submit(priority=5)
    one.run_pass()
    assert schedulers.preempted() == {}, "the other worker's job has done less, so that worker stops it"
    two.run_pass()
    one.run_pass()
    assert schedulers.preempted() == {victim.job_id: preemptor}
    schedulers.store.end(victim, EndReason.PREEMPTED)
    one.run_pass()  # it was woken at the victim's end, and is faster
    assert schedulers.preempted() == {victim.job_id: preemptor}, "the place that became free is the preemptor's"
    two.run_pass()
    assert (one.taken, two.taken) == ([], [preemptor])
    assert schedulers.preempted() == {}


def test_no_job_is_preempted_if_another_worker_has_a_free_device(schedulers: SchedulersFixture) -> None:
    one, two = schedulers.scheduler("box-a", slot(0)), schedulers.scheduler("box-b", slot(0))
    lower = one.start_job("cpu-0", preemptible=True)
    preemptor = schedulers.submit(priority=5)
    one.run_pass()
    assert schedulers.preempted() == {}
    schedulers.store.drain(two.id)
    one.run_pass()
    assert schedulers.preempted() == {lower.job_id: preemptor}, "the other worker drains, and will not take it"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_job_is_preempted_if_a_gpu_will_soon_release_its_memory(
    schedulers: SchedulersFixture, elsewhere: bool
) -> None:
    one, two = schedulers.scheduler("box-a", gpu(0)), schedulers.scheduler("box-b", gpu(0))
    lower = one.start_job("GPU-0", preemptible=True)
    two.start_job("GPU-0")
    preemptor = schedulers.submit(priority=5)
    stuck = gpu(1, blocked="GPU 1 is in quarantine")
    host = two if elsewhere else one
    host.report_devices(gpu(0), replace(stuck, returning=True))
    one.run_pass()
    assert schedulers.preempted() == {}
    host.report_devices(gpu(0), stuck)
    one.run_pass()
    assert schedulers.preempted() == {lower.job_id: preemptor}


def test_a_worker_that_may_not_claim_preempts_nothing(schedulers: SchedulersFixture) -> None:
    scheduler = schedulers.scheduler("box", slot(0))
    scheduler.start_job("cpu-0", preemptible=True)
    schedulers.submit(priority=5)
    scheduler.may_claim = False
    scheduler.run_pass()
    assert schedulers.preempted() == {}
    scheduler.may_claim = True
    scheduler.run_pass()
    assert len(schedulers.preempted()) == 1


def test_only_suitable_devices_are_reserved_for_a_preemptor_until_the_stops_are_overdue(
    schedulers: SchedulersFixture, approved: Approved
) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1), gpu(0), gpu(1))
    victim = scheduler.start_job("cpu-0", preemptible=True, stop_grace="5s")
    preemptor = schedulers.submit(2, device="cpu", priority=5)
    small, other = schedulers.submit(device="cpu"), schedulers.submit(device="cuda")
    scheduler.run_pass()
    assert schedulers.preempted() == {victim.job_id: preemptor}
    assert scheduler.taken == [other]
    scheduler.run_pass()
    assert scheduler.taken == [other]
    assert schedulers.reason(small) == (
        "reserved",
        approved("reason"),
    )
    schedulers.set_preempted_ago(victim.job_id, timedelta(seconds=5) + OVERDUE_AFTER - timedelta(seconds=20))
    scheduler.run_pass()
    assert scheduler.taken == [other]
    schedulers.set_preempted_ago(victim.job_id, timedelta(seconds=5) + OVERDUE_AFTER + timedelta(seconds=1))
    scheduler.run_pass()
    assert scheduler.taken == [other, small]
    assert schedulers.preempted() == {victim.job_id: preemptor}


def test_workers_do_not_overwrite_each_others_reasons(schedulers: SchedulersFixture, approved: Approved) -> None:
    one, two = schedulers.scheduler("box-a", slot(0), slot(1)), schedulers.scheduler("box-b", slot(0))
    one.start_job("cpu-0", preemptible=True)
    one.start_job("cpu-1")
    two.start_job("cpu-0")
    preemptor = schedulers.submit(priority=5)
    after, large = schedulers.submit(), schedulers.submit(2)

    def recorded_reasons() -> list[tuple[str, str, int]]:
        one.run_pass()
        two.run_pass()
        return [
            (*schedulers.reason(job_id), schedulers.store.reason(job_id).since) for job_id in (preemptor, after, large)
        ]

    first = recorded_reasons()
    assert recorded_reasons() == first
    assert [reason[:2] for reason in first] == [
        ("preempting", "preempts 1 job of ada on box-a"),
        (
            "reserved",
            "needs 1 device; 0 free on box-a, where jobs stop for a job of ada; box-a is reserved for this job",
        ),
        (
            "devices_busy",
            "needs 2 devices; 0 free on box-a, reserved for a job of ada; behind a job of ada (higher priority)",
        ),
    ]
    stale = Reason("devices_busy", "the reason before a job was preempted")
    schedulers.store.write(lambda session: jobs.set_waiting_reason(session, [preemptor], stale))
    two.run_pass()
    assert schedulers.reason(preemptor) == first[0][:2]
    schedulers.store.cancel(preemptor)
    recorded_reasons()
    assert schedulers.reason(after)[1] == approved("reason")
    assert schedulers.reason(large)[1] == approved("job ada ahead")


@on_both
def test_workers_that_write_many_reasons_at_once_do_not_deadlock(
    schedulers: SchedulersFixture,
) -> None:
    waiting = [schedulers.submit() for _ in range(40)]
    halves = [waiting[:20], waiting[20:]]

    def write_reasons(name: str, order: Sequence[list[str]]) -> None:
        news = {Reason("devices_busy", f"{name} {place}"): ids for place, ids in enumerate(order)}
        schedulers.store.write(lambda session: jobs.set_waiting_reasons(session, news))

    for turn in range(10):
        one = run_together(lambda: write_reasons(f"a{turn}", halves), lambda: write_reasons(f"b{turn}", halves[::-1]))  # noqa: B023
        assert one == [None, None]


def test_a_draining_worker_is_named_in_the_reason_and_neither_takes_jobs_nor_preempts(
    schedulers: SchedulersFixture, approved: Approved
) -> None:
    scheduler = schedulers.scheduler("box", slot(0), slot(1))
    scheduler.start_job("cpu-0", preemptible=True)
    schedulers.store.drain(scheduler.id)
    fits, large = schedulers.submit(), schedulers.submit(2, priority=5)
    scheduler.run_pass()
    assert (scheduler.taken, schedulers.preempted()) == ([], {})
    assert schedulers.reason(large) == ("devices_busy", approved("reason"))
    assert schedulers.reason(fits) == (
        "devices_busy",
        approved("needs device box"),
    )


def test_a_job_that_this_worker_may_not_take_stays_in_the_queue(schedulers: SchedulersFixture, tmp_path: Path) -> None:
    with servers.redis_server(tmp_path) as url:
        schedulers.queue = Queue(url, service=a_service)
        scheduler = schedulers.scheduler("box", slot(0))
        job_ids = [schedulers.submit(), schedulers.submit()]
        for job_id in job_ids:
            schedulers.queue.announce(line.told(schedulers.store.job(job_id)))
        scheduler.before_claim = lambda: schedulers.store.drain(scheduler.id)
        scheduler.run_pass()
        assert scheduler.taken == []
        assert line.waiting(schedulers.queue) == job_ids
        assert {schedulers.store.job(job_id).state for job_id in job_ids} == {JobState.QUEUED}
        schedulers.store.drain(scheduler.id, drain=False)
        scheduler.before_claim = lambda: schedulers.store.cancel(job_ids[0])
        scheduler.run_pass()
        assert scheduler.taken == job_ids[1:]
        assert line.waiting(schedulers.queue) == [], "one was cancelled, the other is taken"
        schedulers.queue.close()


def with_quota(schedulers: SchedulersFixture, owner: str, **limits: int) -> None:
    found = {Resource(name): limit for name, limit in limits.items()}
    schedulers.store.write(lambda session: users.add(session, owner, Role.MEMBER, caller=SERVICE))
    schedulers.store.write(lambda session: quotas.set_limits(session, "user", owner, found, caller=SERVICE))


@on_both
def test_others_pass_a_job_that_waits_for_its_owners_quota(schedulers: SchedulersFixture, approved: Approved) -> None:
    with_quota(schedulers, "ada", devices=2)
    box = schedulers.scheduler("box", *(slot(index) for index in range(4)))
    running = box.start_job("cpu-0", owner="ada")
    wide, narrow = schedulers.submit(2, priority=5), schedulers.submit(1)
    other = schedulers.store.submit(owner="bob", priority=-5)
    box.run_pass()
    assert box.taken == [narrow, other], "a smaller job of the same owner, and one of another, pass it"
    assert schedulers.reason(wide) == ("quota", approved("reason"))
    for claim in (running, box.claims[narrow]):
        schedulers.store.end(claim, EndReason.WORKER_LOST)
        schedulers.store.cancel(claim.job_id)
    box.run_pass()
    assert box.taken == [narrow, other, wide]


def test_a_job_that_its_owners_quota_holds_back_preempts_nothing(
    schedulers: SchedulersFixture, approved: Approved
) -> None:
    with_quota(schedulers, "ada", running=1)
    box = schedulers.scheduler("box", slot(0), slot(1))
    box.start_job("cpu-0", owner="ada")
    box.start_job("cpu-1", owner="bob", preemptible=True)
    waiting = schedulers.submit(priority=5)
    box.run_pass()
    assert schedulers.preempted() == {}
    assert schedulers.reason(waiting) == ("quota", approved("reason"))


def test_a_job_starts_when_the_quota_is_raised(schedulers: SchedulersFixture, approved: Approved) -> None:
    with_quota(schedulers, "ada", devices=1)
    box = schedulers.scheduler("box", slot(0), slot(1))
    wide = schedulers.submit(2)
    box.run_pass()
    assert schedulers.reason(wide) == ("quota", approved("reason"))
    raised = {Resource.DEVICES: 2}
    schedulers.store.write(lambda session: quotas.set_limits(session, "user", "ada", raised, caller=SERVICE))
    box.run_pass()
    assert box.taken == [wide]


def test_quotas_cost_two_reads_a_pass_however_many_jobs_wait(schedulers: SchedulersFixture) -> None:
    with_quota(schedulers, "ada", devices=1)
    box = schedulers.scheduler("box", slot(0), slot(1))
    box.start_job("cpu-0", owner="ada")
    schedulers.store.submit_many(10)
    box.run_pass()
    with recorded_statements(schedulers.store.database) as few:
        box.run_pass()
    schedulers.store.submit_many(200)
    with recorded_statements(schedulers.store.database) as many:
        box.run_pass()
    assert len(many) == len(few)


def test_a_pass_that_claims_may_leave_reasons_to_the_next_one(schedulers: SchedulersFixture) -> None:
    box = schedulers.scheduler("box", slot(0), slot(1))
    first, second, waits = (schedulers.submit(device="cpu") for _ in range(3))
    for code in ("waiting", "reserved"):
        box.run_pass(may_postpone=True)
        assert (box.taken, box.kept_version()) == ([first, second], 1)
        assert schedulers.store.reason(waits).code == code


def test_a_place_is_kept_before_jobs_pass_its_holder_also_if_the_rest_is_left(schedulers: SchedulersFixture) -> None:
    box = schedulers.scheduler("box", slot(0), slot(1))
    box.start_job("cpu-0", time_limit="1h")
    large = schedulers.submit(2, device="cpu")
    passes = schedulers.store.submit(resources={"devices_per_node": 1, "device": "cpu"}, time_limit="10m")
    box.run_pass(may_postpone=True)
    assert box.taken == [passes]
    assert box.kept_version() == 1
    assert schedulers.store.reason(large).code != "running"
