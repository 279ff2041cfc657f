"""A replay: when waiting jobs start, if all run as long as they are believed to."""

from collections.abc import Collection, Generator
from dataclasses import replace
from random import Random
import sys
from types import FrameType
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from scheduling.plan import plan, planning
from scheduling.replay import Reached, replay
from scheduling.snapshot import OwnerUse, Snapshot
from tests.scheduling.clusters import HOUR, NOW, gpu, host, runs, seen, slots, waits
from tests.scheduling.playing import Playing
from tests.scheduling.snapshots import snapshot_of
from tests.scheduling.worlds import any_world

_T = TypeVar("_T")
FRACTIONS = [None, 0.0, 1e-300, 0.5, 1.0, 7.0, -1.0, float("nan"), float("inf")]


def test_waiting_jobs_start_when_those_before_them_are_believed_to_end() -> None:
    running = [runs("job_0", limit_us=24 * HOUR, fraction=0.25)]
    line = (waits("job_1", submitted=NOW - 2 * HOUR, ran_us=0, usual_us=2 * HOUR), waits("job_2", owner="eve"))
    snapshot = seen(*line, hosts=[host(slots("job_0"))], running=running)
    assert _starts(snapshot) == {"job_1": NOW + 3 * HOUR, "job_2": NOW + 5 * HOUR}
    assert _starts(snapshot, only=["job_1"]) == {"job_1": NOW + 3 * HOUR}
    assert _starts(snapshot, by_limits=True) == {"job_1": NOW + 23 * HOUR, "job_2": NOW + 47 * HOUR}


def test_a_default_limit_is_no_length_so_what_starts_after_such_a_job_is_unknown() -> None:
    """job_1 starts on a host of which something is known, and job_2 behind a job of which nothing is."""
    known, unknown = runs("job_a", fraction=0.5), runs("job_b", on="wrk_2")
    hosts = [host(slots("job_a")), replace(host(slots("job_b")), id="wrk_2")]
    line = (waits("job_1"), waits("job_2", owner="eve"))
    snapshot = seen(*line, hosts=hosts, running=[known, unknown])
    assert _starts(snapshot) == {"job_1": NOW + HOUR}
    assert _starts(snapshot, by_limits=True).keys() == {"job_1", "job_2"}
    tellings: list[dict[str, Any]] = [
        {"fraction": 0.2},
        {"usual_us": 9 * HOUR},
        {"limit_us": 20 * HOUR},
        {"stopping": True},
    ]
    for told in tellings:
        assert "job_2" in _starts(replace(snapshot, running=(known, replace(unknown, **told)))), told


@given(st.integers(0, 1 << 32))
def test_a_replay_is_what_plans_then_do(seed: int) -> None:
    random = Random(seed)
    snapshot = snapshot_of(any_world(random), random)
    assert _starts(snapshot) == Playing(snapshot).run()


@given(st.integers(0, 1 << 32))
def test_equal_snapshots_give_equal_replays_in_whatever_order_they_list(seed: int) -> None:
    random = Random(seed)
    snapshot = snapshot_of(any_world(random), random)
    shuffled = replace(
        snapshot,
        hosts=_shuffled(snapshot.hosts, random),
        running=_shuffled(snapshot.running, random),
        line=_shuffled(snapshot.line, random),
        displacements=_shuffled(snapshot.displacements, random),
        uses=_shuffled(snapshot.uses, random),
    )
    assert _starts(shuffled) == _starts(snapshot)


@given(st.integers(0, 1 << 32))
def test_a_plan_in_pieces_is_the_plan_whatever_happens_between_them(seed: int) -> None:
    random = Random(seed)
    snapshots = [snapshot_of(any_world(random), random) for _ in range(2)]
    slices = [planning(snapshot) for snapshot in snapshots]
    plans = [None, None]
    while None in plans:
        number = random.choice([number for number, made in enumerate(plans) if made is None])
        try:
            next(slices[number])
        except StopIteration as ended:
            plans[number] = ended.value
    assert plans == [plan(snapshot) for snapshot in snapshots]


@given(st.lists(st.tuples(st.sampled_from(FRACTIONS), st.sampled_from(FRACTIONS)), min_size=1, max_size=8))
def test_whatever_jobs_tell_all_start_within_the_limits_of_those_before_them(told: list[tuple[float, float]]) -> None:
    running = [runs(f"job_r{number}", fraction=one[0], limit_us=23 * HOUR) for number, one in enumerate(told)]
    line = [waits(f"job_w{number}", fraction=one[1], limit_us=23 * HOUR) for number, one in enumerate(told)]
    snapshot = seen(*line, hosts=[host(slots(*(job.job_id for job in running)))], running=running)
    starts = _starts(snapshot)
    assert starts.keys() == {job.id for job in line}
    assert all(NOW <= at <= NOW + 23 * HOUR for at in starts.values())


def test_a_job_that_was_stopped_for_another_comes_back_with_its_work() -> None:
    """The victim needs two hours still; who displaced it needs three, and then ends."""
    victim = runs("job_0", preemptible=True, since=NOW - 6 * HOUR, fraction=0.75)
    line = (
        waits("job_1", priority=1, ran_us=0, usual_us=3 * HOUR),
        waits("job_2", owner="eve", priority=-1),
    )
    starts = _starts(seen(*line, hosts=[host(slots("job_0"))], running=[victim]))
    assert starts == {"job_1": NOW, "job_2": NOW + 5 * HOUR}


def test_what_fits_nowhere_has_no_start_and_costs_no_plan() -> None:
    line = (waits("job_1", 2), waits("job_2", owner="eve"))
    snapshot = seen(*line, hosts=[host([gpu(0, job="x")])])
    assert len([*replay(snapshot, only=["job_1"])]) == 1 + len(snapshot.hosts), "each host is asked once"
    assert _starts(snapshot) == {}
    assert _starts(seen(*line, hosts=[])) == {}


def test_of_a_thousand_owners_no_piece_of_a_replay_is_long() -> None:
    """Counts calls of functions, which do not depend on the machine."""
    line = [waits(f"job_{number:04}", owner=f"user-{number}", ran_us=0, usual_us=HOUR) for number in range(200)]
    uses = tuple(OwnerUse(f"user-{number}", "cpu", float(number)) for number in range(1000))
    snapshot = seen(*line, hosts=[host(slots(*[None] * 64))], uses=uses)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    longest, pieces = 0, replay(snapshot)
    for _ in range(2_000):
        calls = 0
        sys.setprofile(count)
        ended = next(pieces, None) is None
        sys.setprofile(None)
        longest = max(longest, calls)
        if ended:
            break
    assert longest < 20_000


def _starts(snapshot: Snapshot, *, only: Collection[str] | None = None, by_limits: bool = False) -> dict[str, int]:
    slices: Generator[Reached, None, object] = replay(snapshot, only=only, by_limits=by_limits)
    reached = Reached(NOW, {})
    for one in slices:
        assert one.at >= reached.at
        reached = one
    return dict(reached.starts)


def _shuffled(given: tuple[_T, ...], random: Random) -> tuple[_T, ...]:
    return tuple(random.sample(given, len(given)))
