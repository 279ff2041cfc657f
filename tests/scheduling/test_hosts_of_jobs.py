"""On which hosts a job may start: the one that it names, those that have its folders, those that take its owner's."""

from dataclasses import replace

import pytest

from scheduling.needs import Needs, Offer, together
from scheduling.plan import plan
from scheduling.snapshot import Host, Snapshot, Waiting
from tests.approved import Approved
from tests.scheduling.clusters import NOW, host, runs, seen, slots, starts, waits
from torchyard.contract.spec.resources import Resources

BOX_A = Offer(frozenset({"/data"}), frozenset({"cu124", "/envs/cu124"}))
BOX_B = Offer(frozenset({"/scratch"}))
KNOWN = together((BOX_A, BOX_B))


def boxes(**on_a: object) -> tuple[Host, Host]:
    """Returns box-a, which is the better place for a job that may start on both, and box-b."""
    a, b = (
        host(slots(None), "box-a", offer=BOX_A, known=KNOWN),
        host(slots(None, None), "box-b", offer=BOX_B, known=KNOWN),
    )
    return replace(a, **on_a), b  # type: ignore[arg-type]


def placed(job: Waiting, *hosts: Host) -> str | None:
    steps = plan(seen(job, hosts=hosts)).starts
    return steps[0].placement.worker_id if steps else None


def why(job: Waiting, *hosts: Host) -> tuple[str, str]:
    reason = plan(seen(job, hosts=hosts)).reasons.of(job)
    assert reason is not None
    return reason.code, reason.message


def test_a_job_starts_on_the_worker_that_it_names(approved: Approved) -> None:
    named = replace(waits("job_1"), resources=Resources(worker="box-b"))
    assert placed(waits("job_1"), *boxes()) == "wrk_box-a"
    assert placed(named, *boxes()) == "wrk_box-b"
    assert why(named, boxes()[0]) == ("no_such_worker", approved("away"))


@pytest.mark.parametrize(
    ("needs", "worker"),
    [
        (Needs(("/scratch/mnist",)), "wrk_box-b"),
        (Needs(("/scratch",)), "wrk_box-b"),
        (Needs(python="cu124"), "wrk_box-a"),
        (Needs(python="/envs/cu124/bin/python"), "wrk_box-a"),
        (Needs(("/scratchy",)), "wrk_box-a"),
        (Needs(("/nowhere",), "no-such-one"), "wrk_box-a"),
    ],
    ids=["below", "itself", "name", "path", "another", "nobody's"],
)
def test_a_job_starts_where_its_files_and_its_environment_are(needs: Needs, worker: str) -> None:
    """What no host has is no reason to wait: the job starts, and its worker says what is wrong."""
    assert placed(replace(waits("job_1"), needs=needs), *boxes()) == worker


def test_a_reason_says_where_the_files_are(approved: Approved) -> None:
    box_a, box_b = boxes()
    job = replace(waits("job_1"), needs=Needs(("/scratch/mnist",)))
    busy = replace(box_b, devices=slots("job_0", "job_0"))
    assert why(job, box_a, busy) == ("reserved", approved("busy"))
    assert why(job, box_a) == ("no_such_worker", approved("away"))
    both = replace(job, needs=Needs(("/data", "/scratch")))
    assert why(both, *boxes()) == ("no_such_worker", approved("apart"))


def test_a_host_takes_jobs_of_some_users_only(approved: Approved) -> None:
    """Equal requests of two users are told apart: one of them may start."""
    box_a, _ = boxes(users=frozenset({"bob"}))
    ada, bob = waits("job_1", owner="ada"), waits("job_2", owner="bob")
    told_apart = [replace(job, needs=replace(job.needs, owner=job.owner)) for job in (ada, bob)]
    snapshot = seen(*told_apart, hosts=[box_a])
    assert starts(snapshot) == {"job_2": ["cpu-0"]}
    assert why(told_apart[0], box_a) == ("no_such_worker", approved("reason"))


def test_no_place_is_kept_and_nobody_stops_on_a_host_where_the_job_may_not_start() -> None:
    running = runs("job_0", on="wrk_box-a", preemptible=True, since=NOW - 1)
    full = replace(boxes()[0], devices=slots("job_0"))
    job = replace(waits("job_1", priority=10), needs=Needs(("/scratch",)))
    planned = plan(Snapshot(now=NOW, hosts=(full,), running=(running,), line=(job,)))
    assert (planned.steps, planned.reservations) == ((), ())
