"""A controller is killed or delayed while it warns a job that does not use its GPUs, or stops it."""

import pytest
from sqlalchemy import update

from store.db.database import now_us
from store.tables import Attempt, AttemptUse
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.beside import beside
from tests.failpoints.fixture import FailpointFixture

POINTS = [f"store.idle.{side}" for side in ("before", "after")]
MINUTE = 60_000_000


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_controller_leaves_all_to_the_next(service: FailpointFixture, point: str) -> None:
    job_id = _idle(service)
    for what in range(2):
        with started(actions.look_for_idle, service.settings, plan=f"{point}=kill", log=service.log) as child:
            assert child.wait() == -9
        actions.look_for_idle(service.settings)
        assert _messages(service, job_id) == what + 1
        _warned_long_ago(service)
    assert service.job(job_id).idle_timeout_s == 1800


@pytest.mark.parametrize("point", POINTS)
def test_two_controllers_do_it_once(service: FailpointFixture, point: str) -> None:
    job_id = _idle(service)
    _warned_long_ago(service)
    with started(actions.look_for_idle, service.settings, plan=f"{point}=stop@1", log=service.log) as child:
        child.wait_for_stop()
        with beside(service.database, actions.look_for_idle, service.settings) as second:
            assert second.waits == (point == POINTS[0])
            child.go_on()
            assert child.wait() == 0
    assert _messages(service, job_id) == 1
    assert service.job(job_id).idle_timeout_s == 1800


def _idle(service: FailpointFixture) -> str:
    """Returns a running job whose GPUs have been idle for longer than it may."""
    job_id = service.submit_queued(idle_timeout="30m")
    claim = service.running(job_id, service.worker(), "gpu-0")
    long_ago = now_us() - 60 * MINUTE
    use = AttemptUse(
        attempt_id=claim.attempt_id, seen_at=now_us(), measured_us=0, busy_us=0, idle_us=0, idle_since=long_ago
    )
    service.write(lambda session: session.add(use))
    service.write(lambda session: session.execute(update(Attempt).values(running_at=long_ago)))
    return job_id


def _warned_long_ago(service: FailpointFixture) -> None:
    warned = update(AttemptUse).values(warned_at=now_us() - 30 * MINUTE, seen_at=now_us())
    service.write(lambda session: session.execute(warned))


def _messages(service: FailpointFixture, job_id: str) -> int:
    return len([event for event in service.events(job_id) if event.type == "message"])
