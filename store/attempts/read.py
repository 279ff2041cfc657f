"""What a worker reads of an open attempt: the attempt, its job, its secrets, and what is wanted of it."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from store.attempts import state
from store.attempts.facts import AttemptFacts, Claim, Inherited, Inherits, Wanted
from store.jobs import jobs, stop
from store.reaches import orders
from store.secret_keys import SecretKeys
from store.tables import Job
from store.team import secrets
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.attempts.rundir import Env


def read_attempt(session: Session, claim: Claim, keys: SecretKeys) -> AttemptFacts:
    """Returns the attempt, its job and the secrets that this names. Raises StaleClaim if the attempt has ended."""
    row, job = state.find_open(session, claim), jobs.require(session, claim.job_id)
    limits, in_pool = job.stored_spec, row.pool_devices > 0
    return AttemptFacts(
        started_at=row.started_at,
        age=state.measure_age(session, row),
        start_step=row.start_step,
        launcher=row.launcher,
        relay_seq=row.relay_seq,
        offsets=row.offsets,
        cut=frozenset(row.cut.split()),
        owner=job.owner,
        spec=job.spec,
        stop_grace=limits.stop_grace,
        time_left=limits.time_limit - timedelta(microseconds=job.ran_us),
        devices=() if in_pool else tuple(str(device["uuid"]) for device in job.devices),
        world_size=row.pool_devices or len(job.devices),
        in_pool=in_pool,
        secrets=secrets.resolve(session, keys, job),
        wanted=stop.wanted_of(row, job),
        inherited=_inherited_of(job),
        variables=_variables_of(job),
        worker=jobs.worker_name(session, row.worker_id),
    )


def read_wanted(session: Session, claim: Claim) -> Wanted:
    """Returns what is wanted of the attempt. Raises StaleClaim as `read_attempt` does."""
    row = state.find_open(session, claim)
    wanted = stop.wanted_of(row, jobs.require(session, claim.job_id))
    return replace(wanted, reaches=orders.list_orders(session, row.id))


def _inherited_of(job: Job) -> Inherited | None:
    if job.retry_of is None or job.begins_with is None:
        return None
    return Inherited(job.retry_of, cast("Inherits", job.begins_with))


def _variables_of(job: Job) -> dict[str, str]:
    pausing = {} if job.pause_at is None else {Env.PAUSE_AT.value: PausePoint.of(job.pause_at).variable}
    return pausing if job.trial is None else {**pausing, Env.TRIAL.value: str(job.trial)}
