"""Which place is kept for a job that fits nowhere, how long, and who may pass on it."""

from dataclasses import replace

from scheduling.plan import plan
from scheduling.snapshot import Reservation, Snapshot, Waiting
from tests.scheduling.clusters import HERE, HOUR, MINUTE, NOW, THERE, gpu, host, kept, runs, seen, slots, starts, waits
from torchyard.contract.spec.resources import Resources


def stored(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot after the reservations of its plan are stored."""
    return replace(snapshot, reservations=plan(snapshot).reservations)


def test_a_job_of_all_slots_starts_although_a_new_one_comes_at_each_end() -> None:
    running = [runs(f"job_{number}", since=NOW - number * MINUTE) for number in range(4)]
    line: list[Waiting] = [waits("job_large", 4, submitted=NOW - HOUR)]
    snapshot = seen(*line, hosts=[host(slots(*(job.job_id for job in running)))], running=running)
    started_at: list[int] = []
    for number in range(12):
        snapshot = stored(snapshot)
        holders = [device.job_id for device in snapshot.hosts[0].devices]
        ended = next(holder for holder in holders if holder is not None)
        holders = [None if holder == ended else holder for holder in holders]
        new = waits(f"job_new_{number}", owner="eve", submitted=snapshot.now)
        snapshot = replace(
            snapshot,
            now=snapshot.now + MINUTE,
            hosts=(host(slots(*holders)),),
            running=tuple(job for job in snapshot.running if job.job_id != ended),
            line=(*snapshot.line, new),
        )
        planned = plan(snapshot)
        for start in planned.starts:
            snapshot = snapshot.after_start(start.job, start.placement)
        if any(start.job.id == "job_large" for start in planned.starts):
            started_at.append(number)
    assert started_at == [3], "it starts at the fourth end"


def test_the_first_job_that_fits_nowhere_gets_the_place_where_it_can_start_first() -> None:
    running = [runs("job_1", 2, fraction=0.2), runs("job_2", 2, on=THERE, fraction=0.5)]
    hosts = [host(slots("job_1", "job_1")), host(slots("job_2", "job_2"), "there")]
    line = (waits("job_a", 2, submitted=NOW - 2 * HOUR), waits("job_b", 2, owner="bob"))
    planned = plan(seen(*line, hosts=hosts, running=running))
    assert planned.reservations == (
        Reservation(THERE, "cpu", "job_a", "ada", due=NOW + HOUR, bound=NOW + 23 * HOUR, since=NOW),
    )
    assert planned.reasons.of(line[0]) == planned.reasons.by_job["job_a"]
    assert planned.reasons.by_job["job_a"].code == "reserved"


def test_a_later_job_gets_a_place_if_none_that_could_run_it_is_kept() -> None:
    running = [runs("job_1", 1), runs("job_2", 1, on=THERE)]
    hosts = [
        host([gpu(0, job="job_1", memory=24)]),
        host([gpu(1, job="job_2", memory=80)], "there"),
    ]
    large = Resources(device="cuda", min_memory_gb=40)
    first = waits("job_a", submitted=NOW - 2 * HOUR, resources=Resources(device="cuda"))
    second = waits("job_b", owner="bob", resources=large)
    held_first = replace(running[1], limit_us=90 * HOUR)
    planned = plan(seen(first, second, hosts=hosts, running=[running[0], held_first]))
    assert {job: one.worker_id for job, one in kept(planned).items()} == {"job_a": HERE, "job_b": THERE}
    other = plan(seen(first, second, hosts=hosts, running=[replace(running[0], limit_us=90 * HOUR), running[1]]))
    assert {job: one.worker_id for job, one in kept(other).items()} == {"job_a": THERE}


def test_a_place_stays_kept_for_its_job_when_another_is_first() -> None:
    snapshot = seen(waits("job_b", 2), hosts=[host(slots("job_1", None))], running=[runs("job_1")])
    snapshot = stored(snapshot)
    older = waits("job_a", 2, owner="bob", submitted=NOW - 3 * HOUR)
    later = replace(snapshot, line=(*snapshot.line, older))
    assert plan(later).reservations == snapshot.reservations
    ended = replace(later, hosts=(host(slots(None, None)),), running=())
    assert [start.job.id for start in plan(ended).starts] == ["job_b"]


def test_a_higher_priority_takes_a_kept_place() -> None:
    snapshot = stored(seen(waits("job_b", 2), hosts=[host(slots("job_1", None))], running=[runs("job_1")]))
    urgent = waits("job_a", 2, owner="bob", priority=5)
    (one,) = plan(replace(snapshot, line=(*snapshot.line, urgent))).reservations
    assert (one.job_id, one.version) == ("job_a", 2)
    small = waits("job_c", 1, owner="bob", priority=5)
    assert starts(replace(snapshot, line=(*snapshot.line, small))) == {"job_c": ["cpu-1"]}


def test_a_place_moves_only_if_neither_time_gets_later() -> None:
    running = [runs("job_1", 2), runs("job_2", 2, on=THERE, limit_us=30 * HOUR)]
    hosts = [host(slots("job_1", "job_1")), host(slots("job_2", "job_2"), "there")]
    snapshot = stored(seen(waits("job_a", 2), hosts=hosts, running=running))
    assert snapshot.reservations[0].worker_id == HERE
    sooner = replace(running[1], fraction=0.9)
    assert plan(replace(snapshot, running=(running[0], sooner))).reservations == snapshot.reservations
    bounded = replace(sooner, limit_us=20 * HOUR)
    (moved,) = plan(replace(snapshot, running=(running[0], bounded))).reservations
    assert (moved.worker_id, moved.since, moved.version) == (THERE, NOW, 1)


def test_stored_times_are_replaced_only_if_they_are_wrong_by_a_tenth() -> None:
    running = runs("job_1", fraction=0.5)
    snapshot = stored(seen(waits("job_a", 2), hosts=[host(slots("job_1", None))], running=[running]))
    nearly = replace(snapshot, running=(replace(running, fraction=0.49),))
    assert plan(nearly).reservations == snapshot.reservations
    (changed,) = plan(replace(snapshot, running=(replace(running, fraction=0.25),))).reservations
    assert (changed.due, changed.version, changed.since) == (NOW + 3 * HOUR, 2, NOW)


def test_a_place_is_given_up_when_its_host_or_its_job_leaves() -> None:
    running = [runs("job_1", 2)]
    hosts = [host(slots("job_1", "job_1"))]
    snapshot = stored(seen(waits("job_a", 2), waits("job_b"), hosts=hosts, running=running))
    assert [*kept(plan(snapshot))] == ["job_a"]
    assert [*kept(plan(snapshot.without("job_a")))] == ["job_b"], "cancelled, paused, deleted"
    assert plan(snapshot.after_drain(HERE)).reservations == ()
    assert plan(replace(snapshot, hosts=(), running=())).reservations == (), "lost"
    smaller = replace(snapshot, hosts=(host(slots("job_1")),))
    assert [*kept(plan(smaller))] == ["job_b"], "a device fewer"


def test_a_device_that_a_foreign_process_holds_is_not_waited_for() -> None:
    devices = [gpu(0, job="job_1"), gpu(1, blocked="GPU 1 is held by pid 7, not ours")]
    cuda = Resources(devices_per_node=2, device="cuda")
    assert plan(seen(waits("job_a", 2, resources=cuda), hosts=[host(devices)])).reservations == ()
    devices[1] = replace(devices[1], returning=True)
    assert [*kept(plan(seen(waits("job_a", 2, resources=cuda), hosts=[host(devices)])))] == ["job_a"]


def a_kept_place(*line: Waiting) -> Snapshot:
    """Returns a snapshot in which 3 of 4 slots are kept for a job of 4, with `due` in 1 h and `bound` in 23 h."""
    running = [runs("job_1", fraction=0.5)]
    holder = waits("job_a", 4, submitted=NOW - 2 * HOUR)
    snapshot = stored(seen(holder, hosts=[host(slots("job_1", None, None, None))], running=running))
    return replace(snapshot, line=(*snapshot.line, *line))


def test_on_a_kept_place_only_what_ends_before_it_is_due_starts() -> None:
    short = waits("job_b", owner="eve", limit_us=HOUR + 50 * MINUTE)
    long = waits("job_c", owner="eve", limit_us=3 * HOUR)
    assert starts(a_kept_place(short, long)) == {"job_b": ["cpu-1"]}
    (start,) = plan(a_kept_place(short)).starts
    assert start.reservation == a_kept_place().reservations[0]
    assert not start.guest


def test_the_shortest_passes_first() -> None:
    line = [
        waits(f"job_{name}", 2, owner=name, limit_us=HOUR + minutes * MINUTE)
        for name, minutes in (("b", 50), ("c", 20), ("d", 30))
    ]
    assert [*starts(a_kept_place(*line))] == ["job_c"]


def test_behind_a_job_that_fits_nowhere_the_shortest_starts_first_on_other_hosts_too() -> None:
    holder = waits("job_a", 2, submitted=NOW - 3 * HOUR)
    line = (
        waits("job_b", owner="bob", submitted=NOW - 2 * HOUR, ran_us=0, usual_us=5 * HOUR),
        waits("job_c", owner="eve", ran_us=0, usual_us=3 * HOUR),
    )
    hosts = [host(slots("job_1", "job_1")), host(slots("job_2", None), "there")]
    running = [runs("job_1", 2, owner="zoe", fraction=0.5), runs("job_2", owner="zoe", on=THERE)]
    assert [*starts(seen(holder, *line, hosts=hosts, running=running))] == ["job_c"]
    assert [*starts(seen(*line, hosts=hosts, running=running))] == ["job_b"]


def test_what_leaves_enough_devices_passes_however_long_it_runs() -> None:
    running = [runs("job_1", 2, fraction=0.5), runs("job_2", 1)]
    hosts = [host(slots("job_1", "job_1", "job_2", None))]
    snapshot = stored(seen(waits("job_a", 2, submitted=NOW - 2 * HOUR), hosts=hosts, running=running))
    one, two = waits("job_b", 1, owner="eve"), waits("job_c", 1, owner="bob")
    assert [*starts(replace(snapshot, line=(*snapshot.line, one)))] == ["job_b"]
    longer = replace(running[1], limit_us=3 * HOUR)
    hosts = [host(slots("job_1", "job_1", "job_2", None, None))]
    roomy = replace(snapshot, hosts=tuple(hosts), running=(running[0], longer), line=(*snapshot.line, one, two))
    assert starts(replace(roomy, reservations=())) != {}, "it fits at once"
    assert [*starts(roomy)] == ["job_a"]


def test_who_would_be_in_the_way_at_the_bound_does_not_pass() -> None:
    """By belief two slots are free when the place is due. By limits only those that the holder needs."""
    running = [runs("job_1", 1, fraction=0.5), runs("job_2", 1, fraction=0.5, limit_us=80 * HOUR)]
    hosts = [host(slots("job_1", "job_2", None))]
    snapshot = stored(seen(waits("job_a", 2, submitted=NOW - 2 * HOUR), hosts=hosts, running=running))
    other = waits("job_b", 1, owner="eve", limit_us=60 * HOUR)
    assert snapshot.reservations[0].bound == NOW + 23 * HOUR
    assert starts(replace(snapshot, line=(*snapshot.line, other))) == {}


def test_a_preemptible_job_passes_as_a_guest_on_its_believed_length() -> None:
    usual = waits("job_b", owner="eve", ran_us=0, usual_us=50 * MINUTE, preemptible=True)
    (start,) = plan(a_kept_place(usual)).starts
    assert (start.job.id, start.guest) == ("job_b", True)
    assert starts(a_kept_place(replace(usual, preemptible=False))) == {}
    assert starts(a_kept_place(replace(usual, usual_us=70 * MINUTE))) == {}
    assert starts(a_kept_place(replace(usual, usual_us=None))) == {}, "its limit is too long"


def test_a_guest_stops_as_soon_as_the_holder_can_start() -> None:
    usual = waits("job_b", owner="eve", usual_us=90 * MINUTE, preemptible=True)
    snapshot = a_kept_place(usual)
    (start,) = plan(snapshot).starts
    running = snapshot.after_start(start.job, start.placement, guest=True)
    assert plan(running).steps == ()
    assert running.reservations == plan(running).reservations
    later = replace(
        running,
        now=NOW + 30 * MINUTE,
        hosts=(host(slots(None, "job_b", None, None)),),
        running=tuple(job for job in running.running if job.guest),
    )
    (stop,) = plan(later).stops
    assert ([one.victim for one in stop.displacements], stop.job.id, stop.why) == (["job_b"], "job_a", "due")


def test_a_guest_of_an_earlier_holder_is_not_stopped() -> None:
    guest = runs("job_g", guest=True, preemptible=True, usual_us=2 * HOUR)
    planned = plan(seen(waits("job_a", 2), hosts=[host(slots("job_g", None))], running=[guest]))
    assert (planned.stops, kept(planned)["job_a"].due) == ((), NOW + HOUR)
    just_started = replace(guest, since=NOW)
    planned = plan(seen(waits("job_a", 2), hosts=[host(slots("job_g", None))], running=[just_started]))
    assert (planned.stops, kept(planned)["job_a"].due) == ((), NOW + 2 * HOUR)


def test_a_kept_place_stays_kept_until_the_start_is_stored() -> None:
    snapshot = replace(a_kept_place(), hosts=(host(slots(*[None] * 4)),), running=())
    planned = plan(snapshot)
    assert [start.reservation for start in planned.starts] == [*snapshot.reservations] == [*planned.reservations]
    (start,) = planned.starts
    assert plan(snapshot.after_start(start.job, start.placement)).reservations == ()


def test_cpus_and_memory_of_a_host_are_kept_too() -> None:
    asks = Resources(device="cpu", cpus=6, memory_gb=8)
    running = [runs("job_1", resources=asks, fraction=0.5)]
    hosts = [host(slots("job_1", None, None), cpus=8, memory_gb=64)]
    holder = waits("job_a", submitted=NOW - 2 * HOUR, resources=asks)
    snapshot = stored(seen(holder, hosts=hosts, running=running))
    assert kept(plan(snapshot))["job_a"].due == NOW + HOUR
    frugal = waits("job_b", owner="eve", resources=Resources(device="cpu", cpus=2))
    greedy = waits("job_c", owner="bob", resources=Resources(device="cpu", cpus=2.5))
    assert [*starts(replace(snapshot, line=(*snapshot.line, frugal)))] == ["job_b"], "8 - 2 are enough for the holder"
    assert starts(replace(snapshot, line=(*snapshot.line, greedy))) == {}
