"""Warnings of jobs that run, which their workers have no part in."""

from sqlalchemy.orm import Session

from store.jobs import events as job_events
from store.jobs import jobs
from store.notifications import signals
from torchyard.contract.job import JobState


def warn(session: Session, job_id: str, *, attempt: int, cause: str, text: str) -> bool:
    """Adds a warning to a job whose attempt runs, unless it has one of this cause. Returns whether it did."""
    job = jobs.lock(session, job_id)
    if job is None or (job.state, job.attempt) != (JobState.RUNNING, attempt):
        return False
    if (job_id, cause) in job_events.find_causes(session, [job_id]):
        return False
    data = {"level": "warning", "text": text, "cause": cause}
    job_events.append(session, job_id, type="message", attempt=attempt, data=data)
    signals.add_warnings(session, job, [text])
    return True
