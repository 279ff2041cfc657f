"""Pause, resume, preemption and drain with real processes: each stop saves, is not counted and loses nothing."""

from contextlib import closing

import pytest
from sqlalchemy import select

from store.db.database import Database, now_us
from store.tables import Attempt, AttemptUse
from tests.e2e.service import Service, until
from tests.e2e.test_recovery import GATED
from torchyard.client import Client
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import EndReason, JobState
from worker.host import process


@pytest.mark.thorough
def test_requested_stops_lose_no_work(service: Service) -> None:
    job = _running_with_a_step(service, "gated", preemptible=True)
    client, gate = service.client, service.code / "gated" / "gate"

    assert client.jobs.pause(job.id).status_reason.code == "stopping"
    service.wait(job.id, JobState.PAUSED)
    (worker,) = client.workers.list()
    assert [device.job_id for device in worker.devices] == [None, None]
    assert client.jobs.resume(job.id).state is JobState.QUEUED
    until(lambda: _goes_on(service, job.id, attempt=2), what="it goes on after the pause")

    urgent = service.submit_script("urgent", "print('done')", resources={"devices_per_node": 2}, priority=10)
    service.wait(urgent.id, JobState.SUCCEEDED)
    until(lambda: _goes_on(service, job.id, attempt=3), what="it goes on after it made room")

    assert client.workers.drain(worker.id).state == "draining"
    service.wait(job.id, JobState.QUEUED)
    assert client.submit({"trainer": "image-classification"}).state is JobState.QUEUED
    until(lambda: client.workers.list()[0].devices[0].job_id is None, what="the drained worker holds nothing")
    assert client.get(job.id).view.attempt == 3
    waiting = next(client.jobs.list(state=["queued"], name="image-classification"))
    client.jobs.cancel(waiting.id)
    client.workers.undrain(worker.id)
    until(lambda: _goes_on(service, job.id, attempt=4), what="it goes on after the drain")

    gate.touch()
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.attempt == 4
    moves = [(event.data["from"], event.data["to"]) for event in client.jobs.events(job.id) if event.type == "state"]
    asked = [source_target for source_target in moves if source_target[0] == "running"]
    assert asked == [("running", "paused"), ("running", "queued"), ("running", "queued"), ("running", "succeeded")]
    lines = [line.text for line in client.jobs.logs(job.id, rank=0)]
    left = [int(line.split()[2]) for line in lines]
    assert [int(line.split()[4]) for line in lines] == [0, *left[:-1]], "each goes on where the one before it left"
    steps = [checkpoint.step for checkpoint in client.jobs.checkpoints(job.id)]
    assert steps == left[::-1]


def test_an_idle_job_is_warned_and_stopped_and_keeps_its_work(service: Service) -> None:
    """CPU slots have no utilization, so the test writes what the heartbeats of a worker with GPUs would."""
    job = _running_with_a_step(service, "idle", idle_timeout="1m", stop_grace="10m")
    with closing(Database(service.database)) as database:
        _report_idle(database, job.id, warned=False)
        _wake_controller(service)
        (warned,) = until(lambda: _warnings(service, job.id) or None, what="it is warned")
        assert warned.startswith("its GPU was used below 5% for ")
        assert warned.endswith("if that goes on, the job is stopped in 30s (idle_timeout 1m)")
        _report_idle(database, job.id, warned=True)
        _wake_controller(service)
        failed = service.wait(job.id, JobState.FAILED)
    assert failed.error is not None
    assert (failed.error.code, failed.attempt) == (EndReason.IDLE_TIMEOUT, 1)
    assert failed.status_reason.message == "its GPU was used below 5% for 1m (idle_timeout)"
    (line,) = service.client.jobs.logs(job.id, rank=0)
    left = int(line.text.split()[2])
    assert [checkpoint.step for checkpoint in service.client.jobs.checkpoints(job.id)] == [left]
    assert len(_warnings(service, job.id)) == 2, "the second says that it is stopped"


STUBBORN = """
import signal, time, torchyard
signal.signal(signal.SIGTERM, signal.SIG_IGN)
torchyard.init().log({"ready": 1.0}, step=1)
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.thorough
def test_a_job_that_ignores_every_stop_is_ended(service: Service) -> None:
    client = service.client
    with pytest.raises(InvalidSpec, match="stop_grace: must be at most 1h"):
        service.submit_script("endless", STUBBORN, stop_grace="3650d")
    limited = service.submit_script("limited", STUBBORN, stop_grace="1h", time_limit="10s")
    cancelled = service.submit_script("cancelled", STUBBORN, stop_grace="1h")
    until(lambda: _has_begun(service, cancelled.id), what="it ignores SIGTERM")
    assert client.jobs.cancel(cancelled.id).state is JobState.RUNNING
    assert client.jobs.cancel(cancelled.id, now=True).state is JobState.RUNNING
    done = service.wait(cancelled.id, JobState.CANCELLED)
    assert done.status_reason.message.startswith("cancelled by its owner; killed after")
    assert [line.text for line in client.jobs.logs(cancelled.id, rank=0)] == ["ready"], "what it wrote is stored"
    failed = service.wait(limited.id, JobState.FAILED)
    assert failed.error is not None
    assert failed.error.code is EndReason.TIME_LIMIT
    assert process.find(cancelled.id, 1) == process.find(limited.id, 1) == []


@pytest.mark.thorough
def test_the_jobs_of_a_disabled_user_end_whatever_their_grace_is(service: Service) -> None:
    admin = service.client
    admin.users.add("eve")
    eve = Client(url=service.server["url"], token=admin.tokens.make(name="laptop", user="eve").token)
    code = {"code": service.script("stays", STUBBORN)}
    running, waiting = (
        eve.submit({"trainer": "script", "config": code, "stop_grace": "1h", "resources": {"devices_per_node": 2}})
        for _ in range(2)
    )
    until(lambda: _has_begun(service, running.id), what="it ignores SIGTERM")
    admin.users.change("eve", disabled=True, jobs="cancel")
    assert admin.get(waiting.id).state is JobState.CANCELLED
    done = service.wait(running.id, JobState.CANCELLED)
    assert done.status_reason.message == "cancelled by its owner; killed after a grace of 30s"


def _has_begun(service: Service, job_id: str) -> bool:
    job = service.client.get(job_id).view
    assert not job.state.terminal, job.status_reason
    return bool(service.client.jobs.metrics(job_id).data)


def _running_with_a_step(service: Service, name: str, **spec: object) -> JobView:
    job = service.submit_script(name, GATED, max_restarts=0, **spec)
    until(lambda: _goes_on(service, job.id, attempt=1), what="it has begun")
    return job


def _goes_on(service: Service, job_id: str, *, attempt: int) -> bool:
    job = service.client.get(job_id).view
    assert not job.state.terminal, job.status_reason
    points = service.client.jobs.metrics(job_id, attempt=attempt).data
    return job.state is JobState.RUNNING and job.attempt == attempt and bool(points)


def _report_idle(database: Database, job_id: str, *, warned: bool) -> None:
    """Writes that the job's GPUs have been idle for longer than it may, and that it was warned in time."""
    with database.write() as session:
        attempt = session.scalars(select(Attempt).where(Attempt.job_id == job_id)).one()
        attempt.running_at = now_us() - 120_000_000
        use = session.get(AttemptUse, attempt.id) or AttemptUse(
            attempt_id=attempt.id, measured_us=0, busy_us=0, idle_us=0, idle_since=now_us() - 70_000_000
        )
        use.seen_at = now_us() + 120_000_000  # reports would go on
        use.warned_at = now_us() - 30_000_000 if warned else None
        session.add(use)


def _wake_controller(service: Service) -> None:
    """Has the controller look at once, as at each end of a job."""
    waits = service.client.submit({"trainer": "image-classification", "resources": {"devices_per_node": 2}})
    service.client.jobs.cancel(waits.id)


def _warnings(service: Service, job_id: str) -> list[str]:
    events = [event.data for event in service.client.jobs.events(job_id) if event.type == "message"]
    return [data["text"] for data in events if data["level"] == "warning"]
