"""Pause, resume, preemption and drain with real processes: each stop saves, is not counted and loses nothing."""

import pytest

from tests.e2e.service import Service, until
from tests.e2e.test_recovery import GATED
from torchyard.contract.job import JobState
from torchyard.contract.views import JobView


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
    assert client.get(job.id).attempt == 3
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


def _running_with_a_step(service: Service, name: str, **spec: object) -> JobView:
    job = service.submit_script(name, GATED, max_restarts=0, **spec)
    until(lambda: _goes_on(service, job.id, attempt=1), what="it has begun")
    return job


def _goes_on(service: Service, job_id: str, *, attempt: int) -> bool:
    job = service.client.get(job_id)
    assert not job.state.terminal, job.status_reason
    points = service.client.metrics(job_id, attempt=attempt).data
    return job.state is JobState.RUNNING and job.attempt == attempt and bool(points)
