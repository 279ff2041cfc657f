"""A worker is killed while it keeps places for jobs: all of its decision holds, or nothing, and others decide anew."""

import pytest

from scheduling.snapshot import Reservation
from store.queue import placement
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.fixture import FailpointFixture
from worker.settings import Settings

POINTS = ["store.reserve.before", "store.reserve.after"]


def reserve(settings: Settings, *wanted: tuple[str, str]) -> bool:
    """Keeps the CPU slots of workers, which nobody has, for jobs."""
    with actions.opened(settings) as store:
        kept = [Reservation(worker, "cpu", job_id, "", due=1, bound=2, since=0, version=0) for worker, job_id in wanted]
        return placement.keep_places(store, [], kept, known=set()) is not None


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_decision_holds_as_a_whole_or_not_at_all(service: FailpointFixture, point: str) -> None:
    one, two = service.worker("one"), service.worker("two")
    first, second = service.submit_queued(), service.submit_queued()
    decided = ((one, first), (two, second))
    with started(_decide, service.settings, *decided, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    was_stored = point.endswith("after")
    assert service.kept() == ({one: (first, 1), two: (second, 1)} if was_stored else {})
    assert reserve(service.settings, (one, second), (two, first)) is not was_stored
    first_at = one if was_stored else two
    assert service.claim(second, first_at, "a") is None, "the place of a killed worker's decision is kept"
    claim = service.claim(first, first_at, "a", reservation=1)
    assert claim is not None
    assert service.kept().keys() == {one, two} - {first_at}


def _decide(settings: Settings, *wanted: tuple[str, str]) -> None:
    reserve(settings, *wanted)
