"""What a worker reads of its attempts, and of those whose leases have expired. All of them raise Unavailable."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import cast

from store.attempts import facts_rows as attempt_facts
from store.attempts import leases
from store.attempts import rows as attempts
from store.attempts.facts import AttemptFacts, Claim, EarlierAttempt, Inherited, Inherits, Wanted
from store.db.database import Snapshots
from store.jobs import events as job_events
from store.jobs import initial_files, jobs, stop
from store.jobs.initial_weights_facts import InitialFacts
from store.output import artifacts, checkpoints
from store.output.checkpoints_facts import ArtifactFacts, CheckpointFacts
from store.output.facts import Room
from store.store import Store
from store.tables import Job
from store.team import secrets
from torchyard.contract.job import EndReason
from torchyard.contract.pausing import PausePoint
from torchyard.contract.rundir import Env

_MOST_ARTIFACTS = 100_000
_MOST_MESSAGES = 20
_BEYOND_ALL = 2**31 - 1
"""The number of no attempt."""


def read(store: Store, claim: Claim) -> AttemptFacts:
    """Returns the attempt, its job and the secrets that this names. Raises StaleClaim if the attempt has ended."""
    with store.read() as session:
        row, job = attempts.read_open(session, claim), jobs.get(session, claim.job_id)
        limits, in_pool = job.stored_spec, row.pool_devices > 0
        return AttemptFacts(
            started_at=row.started_at,
            age=attempts.age(session, row),
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
            secrets=secrets.resolve(session, store.secret_keys, job),
            wanted=stop.wanted_of(row, job),
            inherited=_inherited_of(job),
            variables=_variables_of(job),
            worker=jobs.worker_name(session, row.worker_id),
        )


def wanted(store: Snapshots, claim: Claim) -> Wanted:
    """Returns what is wanted of the attempt. Raises StaleClaim as `read` does."""
    with store.read() as session:
        row = attempts.read_open(session, claim)
        return stop.wanted_of(row, jobs.get(session, claim.job_id))


def owned(store: Snapshots, worker_id: str, *, holder: str | None = None) -> list[Claim]:
    """Returns the worker's open attempts. `holder`: as in `store.attempts.leases.renew`."""
    with store.read() as session:
        return leases.open_claims(session, worker_id, holder=holder)


def expired(store: Snapshots) -> list[Claim]:
    """Returns the open attempts on hosts whose lease has expired."""
    with store.read() as session:
        return leases.expired_claims(session)


def checkpoints_of_job(store: Snapshots, claim: Claim) -> list[CheckpointFacts]:
    """Returns the checkpoints of the attempt's job, newest first, as `store.output.checkpoints.newest_first` does."""
    with store.read() as session:
        return checkpoints.newest_first(session, claim.job_id)


def checkpoint_with_files(store: Snapshots, checkpoint_id: str) -> CheckpointFacts | None:
    """Returns a checkpoint with all of its files; None if it is no longer there."""
    with store.read() as session:
        return checkpoints.with_files(session, checkpoint_id)


def initial_of_job(store: Snapshots, claim: Claim) -> InitialFacts | None:
    """Returns what the attempt's job starts from, if its spec names weights."""
    with store.read() as session:
        return initial_files.of_job(session, claim.job_id)


def earlier(store: Snapshots, claim: Claim) -> list[EarlierAttempt]:
    """Returns the attempts of the same job that were claimed before, oldest first."""
    with store.read() as session:
        return attempt_facts.earlier(session, claim.job_id, before=claim.number)


def attempts_of(store: Snapshots, job_id: str) -> list[EarlierAttempt]:
    """Returns all attempts of a job, oldest first; none if it was deleted."""
    with store.read() as session:
        return attempt_facts.earlier(session, job_id, before=_BEYOND_ALL)


def files_of(store: Snapshots, job_id: str) -> tuple[list[CheckpointFacts], Sequence[ArtifactFacts]]:
    """Returns the checkpoints of a job, newest first, and the files that it has left; none if it was deleted."""
    with store.read() as session:
        return checkpoints.newest_first(session, job_id), artifacts.list_after(
            session, job_id, limit=_MOST_ARTIFACTS, kept=None
        )


def newest_messages(store: Snapshots, job_id: str, *, attempt: int) -> list[str]:
    """Returns the texts of the newest messages of an attempt, newest first."""
    with store.read() as session:
        return job_events.newest_messages(session, job_id, attempt=attempt, limit=_MOST_MESSAGES)


def captured_names(store: Snapshots, claim: Claim) -> list[str]:
    """Returns the names of all checkpoints that any attempt of the same job has ever captured."""
    with store.read() as session:
        return checkpoints.captured_names(session, claim.job_id)


def count_ended(store: Snapshots, claim: Claim, reason: EndReason, *, since: int, why: str = "") -> int:
    """Returns how many attempts of the same job, from number `since` on, ended for that reason, as `why` begins."""
    with store.read() as session:
        return attempt_facts.count_ended(session, claim.job_id, reason, since=since, why=why)


def checkpoint_names(store: Snapshots, claim: Claim) -> list[str]:
    """Returns the names of all checkpoints that the attempt has ever listed."""
    with store.read() as session:
        return checkpoints.recorded_names(session, claim.job_id, attempt=claim.number)


def removed_checkpoints(store: Snapshots, claim: Claim, *, attempt: int, names: Collection[str]) -> set[str]:
    """Returns those of `names` that an attempt of the same job listed and that were removed since."""
    with store.read() as session:
        return checkpoints.removed_among(session, claim.job_id, attempt=attempt, names=names)


def artifact_room(store: Snapshots, claim: Claim) -> Room:
    """Returns which artifacts of the job are stored, and how many bytes its owner may store besides."""
    with store.read() as session:
        return artifacts.room(session, claim.job_id)


def _inherited_of(job: Job) -> Inherited | None:
    if job.retry_of is None or job.begins_with is None:
        return None
    return Inherited(job.retry_of, cast("Inherits", job.begins_with))


def _variables_of(job: Job) -> dict[str, str]:
    pausing = {} if job.pause_at is None else {Env.PAUSE_AT.value: PausePoint.of(job.pause_at).variable}
    return pausing if job.trial is None else {**pausing, Env.TRIAL.value: str(job.trial)}
