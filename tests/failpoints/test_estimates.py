"""A worker is killed while it stores estimates: each write is stored whole or not at all, and another goes on."""

import pytest
from sqlalchemy import select

from store.queue import estimating as estimates
from store.queue.estimates_facts import Estimated, Lease
from store.tables import Calibration, Estimate, Forecast
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.fixture import FailpointFixture
from worker.settings import Settings

STORING = ["store.estimates.before", "store.estimates.after"]
SCORING = ["store.score.before", "store.score.after"]
POINTS = [*STORING, *SCORING]
LEASE = Lease("one", 1)


@pytest.mark.parametrize("point", STORING)
def test_killed_estimates_are_stored_as_a_whole_or_not_at_all(service: FailpointFixture, point: str) -> None:
    job_id = service.submit_queued()
    _hold(service.settings, "one")
    with started(_put_in_a_child, service.settings, job_id, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    was_stored = point.endswith("after")
    found = service.read(
        lambda session: [*session.scalars(select(Estimate.job_id)), *session.scalars(select(Forecast.job_id))]
    )
    assert found == ([job_id] * 2 if was_stored else [])
    assert _put(service.settings, job_id)
    assert service.read(lambda session: len(session.scalars(select(Forecast)).all())) == 1


@pytest.mark.parametrize("point", SCORING)
def test_a_killed_score_counts_once(service: FailpointFixture, point: str) -> None:
    job_id = service.submit_queued()
    _hold(service.settings, "one")
    _put(service.settings, job_id)
    service.running(job_id, service.worker())
    with started(_score_in_a_child, service.settings, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    was_stored = point.endswith("after")
    assert _score(service.settings) == (0 if was_stored else 1)
    assert service.read(lambda session: session.scalars(select(Calibration.scored)).all()) == [1]
    assert service.read(lambda session: session.scalars(select(Forecast.hour)).all()) == [0]


def _hold(settings: Settings, worker_id: str) -> None:
    with actions.opened(settings) as store:
        estimates.hold_lease(store, worker_id)


def _put_in_a_child(settings: Settings, job_id: str) -> None:
    _put(settings, job_id)


def _put(settings: Settings, job_id: str) -> bool:
    with actions.opened(settings) as store:
        found = [Estimated(job_id, 1, 60_000_000, 0, 1, None, None)]
        with store.write("estimates") as session:
            return estimates.store_estimates(session, LEASE, made_at=2**62, estimated=found, after=None)


def _score_in_a_child(settings: Settings) -> None:
    _score(settings)


def _score(settings: Settings) -> int:
    with actions.opened(settings) as store:
        return estimates.score_forecasts(store, LEASE)
