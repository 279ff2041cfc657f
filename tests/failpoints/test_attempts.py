"""A worker is killed, or hangs until it is rescued, around each of its commits and pushes; others go on."""

import threading

import pytest

from tests.failpoints import scenes
from tests.failpoints.child import REFUSED, playing
from tests.failpoints.house import House
from torchyard.errors import Conflict
from torchyard.job import JobState

SIDES = ("before", "after")
STORED = ("look", "claim", "prepared", "launched", "running", "record", "end")
POINTS = [
    *(f"store.{what}.{side}" for what in STORED for side in SIDES),
    *(f"queue.{what}.{side}" for what in ("remove", "announce") for side in SIDES),
]
TIMES = [*((point, 1) for point in POINTS), ("store.record.before", 2), ("store.record.after", 2)]
LOOKS = [f"store.{what}.{side}" for what in ("reason", "preempt") for side in SIDES]
BOTH = [f"store.{what}.{side}" for what in ("claim", "running", "end") for side in SIDES]

each_point = pytest.mark.parametrize(("point", "hit"), TIMES, ids=[f"{point}-{hit}" for point, hit in TIMES])


@each_point
def test_another_worker_goes_on_where_one_was_killed(house: House, point: str, hit: int) -> None:
    job_id = house.queue_up()
    with playing(scenes.work, house.settings, house.worker(), plan=f"{point}=kill@{hit}", log=house.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    _, what, side = point.split(".")
    if what in {"claim", "launched", "running", "record", "end"}:
        assert _is_stored(house, what, job_id, hit=hit) == (side == "after")
    house.take_over(job_id)
    house.check(job_id)
    assert house.job(job_id).attempt == (1 if point in {"store.end.after", "store.claim.before"} else 2)


@each_point
def test_a_worker_that_hangs_until_it_is_rescued_changes_nothing_more(house: House, point: str, hit: int) -> None:
    job_id = house.queue_up()
    with playing(scenes.work, house.settings, house.worker(), plan=f"{point}=stop@{hit}", log=house.log) as child:
        child.wait_for_stop()
        others = threading.Thread(target=house.take_over, args=(job_id,))
        others.start()
        if point.endswith(".before") and point.startswith("store."):
            others.join(0.15)  # it holds the row, or SQLite's only writer: they wait for it
            before = None
        else:
            others.join()
            before = house.everything()
        child.go_on()
        assert child.wait() in {0, REFUSED}
        others.join()
    if before is not None:
        assert house.everything() == before
    house.check(job_id)


@pytest.mark.parametrize("point", LOOKS)
def test_a_worker_that_is_killed_while_it_looks_at_the_queue(house: House, point: str) -> None:
    worker = house.worker()
    holder = house.running(house.submit(preemptible=True), worker, "cpu-0")
    urgent = house.queue_up(priority=5)
    misfit = house.queue_up(resources={"device": "cuda"})
    with playing(scenes.look, house.settings, worker, plan=f"{point}=kill", log=house.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    scenes.look(house.settings, worker)
    assert house.job(holder.job_id).preempted_for == urgent
    assert house.job(urgent).reason_code == "preempting"
    assert house.job(misfit).reason_code == "devices_busy"  # nobody overtakes the one for which room is made
    assert house.moves(holder.job_id) == ["queued", "starting", "running"]
    house.check_queue()


@pytest.mark.parametrize("intent", ["cancel", "pause"])
@pytest.mark.parametrize("point", BOTH)
def test_an_intent_and_a_killed_worker_have_one_outcome(house: House, intent: str, point: str) -> None:
    job_id = house.queue_up()
    with playing(scenes.work, house.settings, house.worker(), plan=f"{point}=stop", log=house.log) as child:
        child.wait_for_stop()
        asking = threading.Thread(target=_ask, args=(house, intent, job_id))
        asking.start()
        asking.join(0.1)
        child.kill()
        asking.join()
    house.end_rescued(job_id)
    job = house.job(job_id)
    expected = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED}[intent]
    assert job.state == (JobState.SUCCEEDED if point == "store.end.after" else expected)
    if job.state == JobState.PAUSED:
        scenes.request(house.settings, "resume", job_id)
        house.take_over(job_id)
        house.check(job_id)
    else:
        assert [move for move in house.moves(job_id) if JobState(move).terminal] == [job.state]
        assert house.held() == {}
        house.check_queue()


def _ask(house: House, intent: str, job_id: str) -> None:
    try:
        scenes.request(house.settings, intent, job_id)
    except Conflict:  # it has ended
        assert house.job(job_id).finished_at is not None


def _is_stored(house: House, what: str, job_id: str, *, hit: int) -> bool:
    job = house.job(job_id)
    if what == "claim":
        return job.attempt == 1
    (attempt,) = house.attempts(job_id)
    return {
        "launched": attempt.launcher is not None,
        "running": job.state == JobState.RUNNING,
        "record": attempt.relay_seq == hit,
        "end": attempt.ended_at is not None,
    }[what]
