"""What the service of a lab has stored of a box's job."""

from sqlalchemy import create_engine, func, select, update

from store.tables import Attempt, Worker
from tests.hosts.lab import Box
from tests.hosts.service import LabService
from torchyard.contract.attempts.rundir import RunDir


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
