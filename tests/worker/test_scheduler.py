"""One pass over the queue, and what several workers on one database make of it."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from store.announcement import Announcement
from store.queries import preemption
from store.queue import Queue
from store.rows import jobs
from store.rows.jobs import Reason
from tests import servers
from tests.databases import on_both
from tests.store.fixture import run_together
from tests.worker.rack import Rack
from tests.worker.test_schedule import gpu, slot
from torchyard.contract.job import EndReason, JobState
from worker.placement import schedule


def test_jobs_that_need_the_same_are_looked_at_once(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    make_room = schedule.make_room

    def counted(*arguments: Any) -> Any:
        searched.append(1)
        return make_room(*arguments)

    monkeypatch.setattr(schedule, "make_room", counted)
    hand = rack.hand("box", *(slot(index) for index in range(4)))
    hand.runs("cpu-0")
    for index in (1, 2, 3):
        hand.runs(f"cpu-{index}", preemptible=True)
    for _ in range(5):
        rack.submit(4)
    hand.look()
    assert searched == [], "no job of lower priority"
    for _ in range(5):
        rack.submit(4, priority=5)
    hand.look()
    assert len(searched) == 1
    assert rack.asked() == {}


@on_both
def test_where_one_has_made_room_another_does_not_make_it_too(rack: Rack) -> None:
    one, two = rack.hand("box-a", slot(0)), rack.hand("box-b", slot(0))
    victim = one.runs("cpu-0", preemptible=True)
    two.runs("cpu-0", preemptible=True)
    urgent = rack.submit(priority=5)
    one.look()
    two.look()
    assert rack.asked() == {victim.job_id: urgent}
    rack.yard.end(victim, EndReason.PREEMPTED)
    two.look()  # rung at the victim's end, and faster
    assert rack.asked() == {}
    one.look()
    assert one.taken == [urgent]


def test_no_job_stops_where_another_worker_has_a_free_device(rack: Rack) -> None:
    one, two = rack.hand("box-a", slot(0)), rack.hand("box-b", slot(0))
    lower = one.runs("cpu-0", preemptible=True)
    urgent = rack.submit(priority=5)
    one.look()
    assert rack.asked() == {}
    rack.yard.drain(two.id)
    one.look()
    assert rack.asked() == {lower.job_id: urgent}, "the other one drains, and will not take it"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_gpu_whose_memory_is_about_to_be_back_is_waited_for(rack: Rack, elsewhere: bool) -> None:
    one, two = rack.hand("box-a", gpu(0)), rack.hand("box-b", gpu(0))
    lower = one.runs("GPU-0", preemptible=True)
    two.runs("GPU-0")
    urgent = rack.submit(priority=5)
    stuck = gpu(1, blocked="GPU 1 is in quarantine")
    host = two if elsewhere else one
    host.seen(gpu(0), stuck.model_copy(update={"returning": True}))
    one.look()
    assert rack.asked() == {}
    host.seen(gpu(0), stuck)
    one.look()
    assert rack.asked() == {lower.job_id: urgent}


def test_nobody_is_asked_by_a_worker_that_could_not_take_the_job(rack: Rack) -> None:
    hand = rack.hand("box", slot(0))
    hand.runs("cpu-0", preemptible=True)
    rack.submit(priority=5)
    hand.may_claim = False
    hand.look()
    assert rack.asked() == {}
    hand.may_claim = True
    hand.look()
    assert len(rack.asked()) == 1


def test_only_what_suits_the_favoured_job_is_kept_for_it_and_not_for_ever(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1), gpu(0), gpu(1))
    victim = hand.runs("cpu-0", preemptible=True, stop_grace="5s")
    urgent = rack.submit(2, device="cpu", priority=5)
    small, other = rack.submit(device="cpu"), rack.submit(device="cuda")
    hand.look()
    assert rack.asked() == {victim.job_id: urgent}
    assert hand.taken == [other]
    hand.look()
    assert hand.taken == [other]
    assert rack.reason(small)[1] == f"needs 1 CPU slot; 1 free on box, where room is made for {urgent}"
    rack.asked_ago(victim.job_id, timedelta(seconds=5) + preemption.OVERDUE_AFTER - timedelta(seconds=20))
    hand.look()
    assert hand.taken == [other]
    rack.asked_ago(victim.job_id, timedelta(seconds=5) + preemption.OVERDUE_AFTER + timedelta(seconds=1))
    hand.look()
    assert hand.taken == [other, small]
    assert rack.asked() == {victim.job_id: urgent}


def test_workers_do_not_correct_each_others_words(rack: Rack) -> None:
    one, two = rack.hand("box-a", slot(0), slot(1)), rack.hand("box-b", slot(0))
    victim = one.runs("cpu-0", preemptible=True)
    one.runs("cpu-1")
    two.runs("cpu-0")
    urgent = rack.submit(priority=5)
    behind, large = rack.submit(), rack.submit(2)

    def said() -> list[tuple[str, str, int]]:
        one.look()
        two.look()
        return [(*rack.reason(job_id), rack.yard.reason(job_id).since) for job_id in (urgent, behind, large)]

    first = said()
    assert said() == first
    assert [words[:2] for words in first] == [
        ("preempting", f"room is made on box-a: {victim.job_id} of lower priority stops first"),
        ("devices_busy", f"needs 1 device; 0 free on box-a, where room is made for {urgent}; 0 free on box-b"),
        ("devices_busy", f"needs 2 devices; 0 free on box-a, where room is made for {urgent}"),
    ]
    stale = Reason("devices_busy", "what a worker had found before room was made")
    rack.yard.write(lambda session: jobs.set_waiting_reason(session, [urgent], stale))
    two.look()
    assert rack.reason(urgent) == first[0][:2]
    rack.yard.cancel(urgent)
    said()
    assert rack.reason(behind)[1] == "needs 1 device; 0 free on box-a; 0 free on box-b"


@on_both
def test_workers_that_say_many_reasons_at_once_do_not_wait_for_each_other_in_a_circle(rack: Rack) -> None:
    waiting = [rack.submit() for _ in range(40)]
    halves = [waiting[:20], waiting[20:]]

    def say(name: str, order: Sequence[list[str]]) -> None:
        news = {Reason("devices_busy", f"{name} {place}"): ids for place, ids in enumerate(order)}
        rack.yard.write(lambda session: jobs.set_waiting_reasons(session, news))

    for turn in range(10):
        one = run_together(lambda: say(f"a{turn}", halves), lambda: say(f"b{turn}", halves[::-1]))  # noqa: B023
        assert one == [None, None]


def test_a_worker_that_drains_says_so_and_neither_takes_nor_makes_room(rack: Rack) -> None:
    hand = rack.hand("box", slot(0), slot(1))
    hand.runs("cpu-0", preemptible=True)
    rack.yard.drain(hand.id)
    fits, large = rack.submit(), rack.submit(2, priority=5)
    hand.look()
    assert (hand.taken, rack.asked()) == ([], {})
    assert rack.reason(fits) == ("devices_busy", "needs 1 device; box is draining")
    assert rack.reason(large) == ("devices_busy", "needs 2 devices; box is draining")


def test_a_job_that_this_worker_may_not_take_stays_in_the_queue_for_others(rack: Rack, tmp_path: Path) -> None:
    with servers.redis_server(tmp_path) as url:
        rack.queue = Queue(url)
        hand = rack.hand("box", slot(0))
        job_ids = [rack.submit(), rack.submit()]
        for job_id in job_ids:
            rack.queue.announce(Announcement(priorities={job_id: 0}))
        hand.meanwhile = lambda: rack.yard.drain(hand.id)
        hand.look()
        assert hand.taken == []
        assert rack.queue.waiting() == job_ids
        assert {rack.yard.job(job_id).state for job_id in job_ids} == {JobState.QUEUED}
        rack.yard.drain(hand.id, drain=False)
        hand.meanwhile = lambda: rack.yard.cancel(job_ids[0])
        hand.look()
        assert hand.taken == job_ids[1:]
        assert rack.queue.waiting() == [], "one was cancelled, the other is taken"
        rack.queue.close()
