"""A replay: when waiting jobs start, if all run as long as they are believed to."""

from collections.abc import Collection

from scheduling.replay import replay
from scheduling.snapshot import Snapshot
from tests.scheduling.clusters import HOUR, NOW, host, runs, seen, slots, waits


def test_waiting_jobs_start_when_those_before_them_are_believed_to_end() -> None:
    running = [runs("job_0", limit_us=24 * HOUR, fraction=0.25)]
    line = (waits("job_1", submitted=NOW - 2 * HOUR, ran_us=0, usual_us=2 * HOUR), waits("job_2", owner="eve"))
    snapshot = seen(*line, hosts=[host(slots("job_0"))], running=running)
    assert _starts(snapshot) == {"job_1": NOW + 3 * HOUR, "job_2": NOW + 5 * HOUR}
    assert _starts(snapshot, only=["job_1"]) == {"job_1": NOW + 3 * HOUR}
    assert _starts(snapshot, by_limits=True) == {"job_1": NOW + 23 * HOUR, "job_2": NOW + 47 * HOUR}


def test_a_job_that_fits_nowhere_has_no_start() -> None:
    snapshot = seen(waits("job_1", 2), waits("job_2", owner="eve"), hosts=[host(slots("x"))])
    assert _starts(snapshot) == {}


def _starts(snapshot: Snapshot, *, only: Collection[str] | None = None, by_limits: bool = False) -> dict[str, int]:
    slices = replay(snapshot, only=only, by_limits=by_limits)
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            return dict(ended.value)
