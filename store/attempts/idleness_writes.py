"""Warns and stops jobs that do not use their GPUs."""

from datetime import timedelta

from sqlalchemy.orm import Session

from store.attempts import idleness
from store.attempts.idleness_facts import IdleFacts
from store.jobs import events as job_events
from store.jobs import jobs, stop
from store.notifications import signals
from store.store import Store
from store.tables import Job
from torchyard.contract.idleness import warning


def follow(store: Store, job_id: str, *, maximum: timedelta | None) -> None:
    """Warns the job, or asks it to stop, if it is still time for that. `maximum`: the operator's.

    Repeating it changes nothing, as both are stored. Raises Unavailable.
    """
    with store.write("idle") as session:
        job = jobs.lock(session, job_id)
        found = next(iter(idleness.find(session, job_id)), None)
        due = None if found is None else found.due(maximum)
        if job is None or found is None or due is None:
            return
        if due.what == "warning":
            _warn(session, job, found, due.timeout)
        else:
            stop.request_idle_stop(session, job, timeout=due.timeout)


def _warn(session: Session, job: Job, found: IdleFacts, timeout: timedelta) -> None:
    text = warning(devices=found.devices, lasted=found.lasted, left=found.left(timeout), timeout=timeout)
    data = {"level": "warning", "text": text, "cause": "idle"}
    job_events.append(session, job.id, type="message", attempt=found.attempt, data=data)
    signals.add_warnings(session, job, [text])
    idleness.note_warning(session, job.id)
