"""A controller is killed, or stopped while another one goes on, around each commit by which it tells what happens."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import select, update

from store.notifications import targets
from store.notifications.facts import NewTarget
from store.tables import Message
from store.team.callers import SERVICE
from tests.failpoints import actions
from tests.failpoints.armed import ArmedProcess, started
from tests.failpoints.beside import beside, on_sqlite
from tests.failpoints.fixture import FailpointFixture
from tests.sessions import write
from torchyard.contract.notifications.kinds import EventKind

COMMITS = ("fan_out", "claim_messages", "message_result", "clean_messages")
POINTS = [f"store.{what}.{side}" for what in COMMITS for side in ("before", "after")]

each_point = pytest.mark.parametrize("point", POINTS)


@pytest.fixture
def jobs(service: FailpointFixture) -> list[str]:
    """Two jobs that have ended, of a user with two targets that nobody has told."""
    with actions.opened(service.settings) as store:
        for name in ("one", "two"):
            new = NewTarget("admin", name, "webhook", "https://example.com/", kinds=[EventKind.JOB_CANCELLED])
            write(store, targets.add, store.secret_keys, new, caller=SERVICE)
    found = [service.submit(owner="admin") for _ in range(2)]
    for job_id in found:
        with started(actions.request, service.settings, "cancel", job_id, plan="", log=service.log) as child:
            assert child.wait() == 0
    return found


@each_point
def test_after_a_kill_each_target_has_each_message_with_one_id(
    service: FailpointFixture, jobs: Sequence[str], point: str
) -> None:
    with _playing(service, f"{point}=kill") as child:
        assert child.wait() == -9
        assert child.acted == [point]
    service.write(lambda session: session.execute(update(Message).values(leased_until=None)))  # as in an hour
    _notify(service)
    _check(service, jobs)


@each_point
def test_beside_a_stopped_controller_another_one_tells_each_target_once(
    service: FailpointFixture, jobs: Sequence[str], point: str
) -> None:
    with _playing(service, f"{point}=stop@1") as child:
        child.wait_for_stop()
        with beside(service.database, actions.notify, service.settings, service.folder / "received") as second:
            assert second.waits == (
                point.endswith(".before") and on_sqlite(service.database)
            )  # else it skips locked rows
            child.go_on()
            assert child.wait() == 0
    _notify(service)
    _check(service, jobs)


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_end_of_a_job_is_told_if_it_is_committed(service: FailpointFixture, jobs: Sequence[str], side: str) -> None:
    job_id = service.submit(owner="admin")
    plan = f"store.cancel.{side}=kill"
    with started(actions.request, service.settings, "cancel", job_id, plan=plan, log=service.log) as child:
        assert child.wait() == -9
    _notify(service)
    _check(service, [*jobs, job_id] if side == "after" else jobs)


def _playing(service: FailpointFixture, plan: str) -> AbstractContextManager[ArmedProcess]:
    return started(actions.notify, service.settings, service.folder / "received", plan=plan, log=service.log)


def _notify(service: FailpointFixture) -> None:
    with _playing(service, "") as child:
        assert child.wait() == 0


def _check(service: FailpointFixture, jobs: Sequence[str]) -> None:
    """Checks that each target has one message of each job, and that each arrived at least once with its id."""
    rows = service.read(lambda session: session.scalars(select(Message)).all())
    targets = {row.target_id for row in rows}
    assert sorted((row.target_id, row.subject) for row in rows) == sorted((one, job) for one in targets for job in jobs)
    assert len(targets) == 2
    assert all(row.delivered_at is not None and row.next_at is None for row in rows)
    received = {tuple(line.split()) for line in (service.folder / "received").read_text().splitlines()}
    assert received == {(row.target_id, row.subject, row.id) for row in rows}
    assert service.everything()["signals"] == []
