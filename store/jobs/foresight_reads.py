"""Reads what forecasts of jobs are made of. All of it raises Unavailable."""

from datetime import timedelta

from scheduling.snapshot import Waiting
from store.db.database import Snapshots
from store.jobs import prospects
from store.jobs.foresight_facts import Ahead, Foresight
from store.queue import calibrations, forecasting


def of_job(store: Snapshots, job_id: str, *, max_stop_grace: timedelta) -> Foresight | None:
    """Returns what is known of a stored job; None if it does not wait for devices.

    Whether the caller may read the job was asked before.
    """
    with store.read() as session:
        return prospects.of_job(session, job_id, max_stop_grace=max_stop_grace)


def ahead_of(store: Snapshots, job: Waiting, *, max_stop_grace: timedelta) -> Ahead:
    """Returns what is ahead of a job, which may not be stored yet."""
    with store.read() as session:
        line = forecasting.first_in_line(session, here="", observed={}, max_stop_grace=max_stop_grace, newcomer=job)
        return Ahead(line, calibrations.tracks(session))
