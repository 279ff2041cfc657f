"""Pause, resume, preemption and drain with real processes: each stop saves, is not counted and loses nothing."""

import pytest

from tests.e2e.service import Service, until
from tests.e2e.test_recovery import GATED
from torchyard.client import Client
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.views.jobs import JobView
from worker.host import process


@pytest.mark.thorough
def test_requested_stops_lose_no_work(service: Service) -> None:
    job = _running_with_a_step(service, "gated", preemptible=True)
    client, gate = service.client, service.code / "gated" / "gate"

    assert client.pause(job.id).status_reason.code == "stopping"
    service.wait(job.id, JobState.PAUSED)
    (worker,) = client.workers()
    assert [device.job_id for device in worker.devices] == [None, None]
    assert client.resume(job.id).state is JobState.QUEUED
    until(lambda: _goes_on(service, job.id, attempt=2), what="it goes on after the pause")

    urgent = service.submit_script("urgent", "print('done')", resources={"devices_per_node": 2}, priority=10)
    service.wait(urgent.id, JobState.SUCCEEDED)
    until(lambda: _goes_on(service, job.id, attempt=3), what="it goes on after it made room")

    assert client.drain(worker.id).state == "draining"
    service.wait(job.id, JobState.QUEUED)
    assert client.submit({"trainer": "image-classification"}).state is JobState.QUEUED
    until(lambda: client.workers()[0].devices[0].job_id is None, what="the drained worker holds nothing")
    assert client.get(job.id).view.attempt == 3
    waiting = next(client.list(state=["queued"], name="image-classification"))
    client.cancel(waiting.id)
    client.undrain(worker.id)
    until(lambda: _goes_on(service, job.id, attempt=4), what="it goes on after the drain")

    gate.touch()
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.attempt == 4
    moves = [(event.data["from"], event.data["to"]) for event in client.events(job.id) if event.type == "state"]
    asked = [source_target for source_target in moves if source_target[0] == "running"]
    assert asked == [("running", "paused"), ("running", "queued"), ("running", "queued"), ("running", "succeeded")]
    lines = [line.text for line in client.logs(job.id, rank=0)]
    left = [int(line.split()[2]) for line in lines]
    assert [int(line.split()[4]) for line in lines] == [0, *left[:-1]], "each goes on where the one before it left"
    steps = [checkpoint.step for checkpoint in client.checkpoints(job.id)]
    assert steps == left[::-1]


STUBBORN = """
import signal, time, torchyard
signal.signal(signal.SIGTERM, signal.SIG_IGN)
torchyard.init().log({"ready": 1.0}, step=1)
print("ready", flush=True)
time.sleep(3600)
"""


def test_a_job_that_ignores_every_stop_is_ended(service: Service) -> None:
    client = service.client
    with pytest.raises(InvalidSpec, match="stop_grace: must be at most 1h"):
        service.submit_script("endless", STUBBORN, stop_grace="3650d")
    limited = service.submit_script("limited", STUBBORN, stop_grace="1h", time_limit="10s")
    cancelled = service.submit_script("cancelled", STUBBORN, stop_grace="1h")
    until(lambda: _has_begun(service, cancelled.id), what="it ignores SIGTERM")
    assert client.cancel(cancelled.id).state is JobState.RUNNING
    assert client.cancel(cancelled.id, now=True).state is JobState.RUNNING
    done = service.wait(cancelled.id, JobState.CANCELLED)
    assert done.status_reason.message.startswith("cancelled by its owner; killed after")
    assert [line.text for line in client.logs(cancelled.id, rank=0)] == ["ready"], "what it wrote is stored"
    failed = service.wait(limited.id, JobState.FAILED)
    assert failed.error is not None
    assert failed.error.code is EndReason.TIME_LIMIT
    assert process.find(cancelled.id, 1) == process.find(limited.id, 1) == []


@pytest.mark.thorough
def test_the_jobs_of_a_disabled_user_end_whatever_their_grace_is(service: Service) -> None:
    admin = service.client
    admin.add_user("eve")
    eve = Client(url=service.server["url"], token=admin.make_token(name="laptop", user="eve").token)
    code = {"code": service.script("stays", STUBBORN)}
    running, waiting = (
        eve.submit({"trainer": "script", "config": code, "stop_grace": "1h", "resources": {"devices_per_node": 2}})
        for _ in range(2)
    )
    until(lambda: _has_begun(service, running.id), what="it ignores SIGTERM")
    admin.change_user("eve", disabled=True, jobs="cancel")
    assert admin.get(waiting.id).state is JobState.CANCELLED
    done = service.wait(running.id, JobState.CANCELLED)
    assert done.status_reason.message == "cancelled by its owner; killed after a grace of 30s"


def _has_begun(service: Service, job_id: str) -> bool:
    job = service.client.get(job_id).view
    assert not job.state.terminal, job.status_reason
    return bool(service.client.metrics(job_id).data)


def _running_with_a_step(service: Service, name: str, **spec: object) -> JobView:
    job = service.submit_script(name, GATED, max_restarts=0, **spec)
    until(lambda: _goes_on(service, job.id, attempt=1), what="it has begun")
    return job


def _goes_on(service: Service, job_id: str, *, attempt: int) -> bool:
    job = service.client.get(job_id).view
    assert not job.state.terminal, job.status_reason
    points = service.client.metrics(job_id, attempt=attempt).data
    return job.state is JobState.RUNNING and job.attempt == attempt and bool(points)
