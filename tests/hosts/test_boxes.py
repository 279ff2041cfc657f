"""A box that shares nothing with its service but a link: what it trains arrives once, whatever happens to the link."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select, update

from store.tables import Attempt, Worker
from tests.e2e.service import until
from tests.hosts.lab import Box, Lab
from tests.hosts.service import LabService, serving
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from trainer.evaluate import evaluate

EPOCHS = 4
DIGITS = {
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}, "training": {"epochs": EPOCHS}, "logging": {"every_steps": 1}},
}


def test_a_box_that_joined_trains_on_while_its_link_is_down(lab: Lab, tmp_path: Path) -> None:
    box = lab.box()
    with serving(lab) as service:
        service.join(box)
        direct = service.submit_on(service.own_worker(), **DIGITS)
        service.wait(direct.id, JobState.SUCCEEDED)
        job = service.submit_on(box.name, **DIGITS)
        until(lambda: steps(service, job.id) > 0, what="the first steps", context=box.said)
        box.cut()
        until(run_of(box, job.id).exit.exists, what="training has ended on the box", context=box.said)
        expire_lease(service, job.id)
        until(lambda: is_lost(service, box), what="the service has lost the box")
        assert service.client.get(job.id).state is JobState.RUNNING, "nothing has been told"
        box.mend()
        done = service.wait(job.id, JobState.SUCCEEDED)
        assert done.attempt == 1
        assert service.curves(job.id) == service.curves(direct.id)
        assert_stored_once(service, job.id)
        with service.client as client:
            kept = [*client.jobs.checkpoints(job.id)]
            aliases = {alias for checkpoint in kept for alias in checkpoint.aliases}
            assert {f"epoch-{number}" for number in range(1, EPOCHS + 1)} <= aliases
            best = client.jobs.download(job.id, ref="best", to=tmp_path / "best.pt")
        assert done.best is not None
        assert evaluate(best, device="cpu")["loss"] == pytest.approx(done.best.value, rel=1e-4)


def steps(service: LabService, job_id: str) -> int:
    """Returns the newest step that is stored."""
    losses = service.curves(job_id).get("train/loss", [])
    return losses[-1][0] if losses else 0


def run_of(box: Box, job_id: str, attempt: int = 1) -> RunDir:
    return RunDir(box.data / "runs" / job_id / str(attempt))


def is_lost(service: LabService, box: Box) -> bool:
    found = service.worker(box.name)
    return found is not None and found.state == "lost"


def expire_lease(service: LabService, job_id: str) -> None:
    """Has half a minute pass, for what the service knows of a job's attempt and of its worker."""
    engine = create_engine(service.database)
    with engine.begin() as connection:
        connection.execute(update(Attempt).where(Attempt.job_id == job_id).values(lease_until=0))
        workers = select(Attempt.worker_id).where(Attempt.job_id == job_id)
        connection.execute(update(Worker).where(Worker.id.in_(workers)).values(seen_at=0))
    engine.dispose()


def assert_stored_once(service: LabService, job_id: str) -> None:
    with service.client as client:
        lines = [(line.rank, line.text) for line in client.jobs.logs(job_id) if "epoch" in line.text]
        names = [checkpoint.id for checkpoint in client.jobs.checkpoints(job_id)]
    assert len(lines) == len({*lines}) and len(names) == len({*names})
    for key, points in service.curves(job_id).items():
        told = [step for step, _ in points]
        assert told == sorted({*told}), f"{key} has a step twice"
    engine = create_engine(service.database)
    with engine.connect() as connection:
        attempts = connection.scalar(select(func.count()).where(Attempt.job_id == job_id))
    engine.dispose()
    assert attempts == 1
