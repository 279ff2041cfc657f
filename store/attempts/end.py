"""The end of an attempt: its last transaction, by its worker or by who rescues its job."""

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from store.announcement import WORKERS, announcement_of
from store.attempts import lease, state
from store.attempts import use as attempt_use
from store.attempts.exit_reports import verified
from store.attempts.facts import Claim
from store.cluster import device_days
from store.cluster.usage_facts import Held
from store.db.database import in_us, now_us
from store.jobs import jobs, outcome
from store.notifications import signals
from store.output import checkpoints
from store.queue import usage
from store.reaches import orders
from store.tables import Allocation, Attempt, Job
from torchyard.contract.attempts.last_error import is_lost_peer
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import EndReason, JobState

_UNDER_WAY_AFTER = timedelta(minutes=5)
"""A script may report nothing of what it does: after so long it counts as under way."""


def end(session: Session, claim: Claim, report: ExitReport, *, requested_stops: Collection[EndReason] = ()) -> JobState:
    """Ends the attempt, releases its devices and returns the job's next state. The last transaction of an attempt.

    Call it when everything of the attempt is stored and every process is gone. `requested_stops` are the stops that the
    worker has requested, besides those in the rows; a report of any other stop is not accepted. Raises StaleClaim.
    """
    closed = session.execute(
        update(Attempt)
        .where(state.is_open(claim))
        .values(ended_at=now_us(), stacks_requested_at=None, stacks=None)
        .returning(Attempt, state.RAN_US.label("ran_us"))
    ).first()
    if closed is None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} has ended")
    orders.forget_attempt(session, claim.attempt_id)
    released = session.scalars(
        update(Allocation)
        .where(Allocation.attempt_id == claim.attempt_id, Allocation.released_at.is_(None))
        .values(released_at=now_us())
        .returning(Allocation.kind)
    ).all()
    announcement_of(session).mark_changed(WORKERS)
    announcement_of(session).move_line()
    job = jobs.lock(session, claim.job_id)
    if job is None:
        raise StaleClaim(f"job {claim.job_id} is gone")
    report = verified(session, closed.Attempt, job, report, requested_stops=requested_stops, ran_us=closed.ran_us)
    report = outcome.with_who_stopped(session, job, report)
    stopped_for = job.preempted_for if report.reason is EndReason.PREEMPTED else None
    ending = {"end_reason": report.reason, "detail": report.message, "stopped_for": stopped_for}
    session.execute(update(Attempt).where(state.is_row_of(claim)).values(**ending))
    published_checkpoint = bool(closed.Attempt.checkpoints) and checkpoints.is_progress(
        session, claim.job_id, attempt=claim.number, start_step=closed.Attempt.start_step
    )
    next_state = outcome.apply(
        session,
        job,
        report,
        published_checkpoint=published_checkpoint,
        made_progress=not _is_own_error(report) or _has_made_progress(session, job),
        ran_us=closed.ran_us,
        by_itself=EndReason.PAUSED not in requested_stops,
    )
    _add_usage(session, job, closed.Attempt, Counter(released), ran_us=closed.ran_us)
    if next_state is JobState.SUCCEEDED:
        usage.note_length(session, job.owner, job.trainer, job.ran_us)
    return next_state


def rescue(session: Session, claim: Claim) -> bool:
    """Ends an attempt whose lease has expired, so that its worker can write nothing more. False if it was renewed."""
    late = session.execute(
        update(Attempt)
        .where(state.is_open(claim), lease.is_lost())
        .values(relay_seq=Attempt.relay_seq + 1)
        .returning(Attempt.worker_id)
    ).first()
    if late is None:
        return False
    name = jobs.worker_name(session, late.worker_id)
    end(session, claim, ExitReport(reason=EndReason.WORKER_LOST, message=f"the lease of worker {name} expired"))
    signals.add(session, EventKind.WORKER_LOST, worker=(late.worker_id, name))
    return True


def end_removed(session: Session, worker_id: str, *, name: str) -> int:
    """Ends the open attempts of a worker that is removed: it can write nothing more, and their jobs return to the
    queue. Returns how many there were.
    """
    claims = lease.list_open(session, worker_id)
    for claim in claims:
        session.execute(update(Attempt).where(state.is_open(claim)).values(relay_seq=Attempt.relay_seq + 1))
        end(session, claim, ExitReport(reason=EndReason.WORKER_LOST, message=f"the worker {name} was removed"))
    return len(claims)


def _is_own_error(report: ExitReport) -> bool:
    """Whether a rank failed by itself, and not because another one was lost. Without a rank, the cause is unknown."""
    is_of_rank = report.reason is EndReason.USER_ERROR and report.rank is not None
    return is_of_rank and not is_lost_peer(f"{report.message}\n{report.traceback}")


def _has_made_progress(session: Session, job: Job) -> bool:
    """Whether an attempt of the job reported a step, a metric or a checkpoint, or ran for long as a script."""
    reported = (Attempt.stepped_at.is_not(None), Attempt.point_bytes > 0, Attempt.checkpoints > 0)
    ran_long = Attempt.ended_at - Attempt.running_at >= in_us(_UNDER_WAY_AFTER)
    progress = or_(*reported, ran_long) if job.trainer == "script" else or_(*reported)
    return session.execute(select(Attempt.id).where(Attempt.job_id == job.id, progress).limit(1)).first() is not None


def _add_usage(session: Session, job: Job, attempt: Attempt, held: Counter[str], *, ran_us: int) -> None:
    """Adds what the attempt held of each kind of device to the use of the job's owner."""
    began = attempt.started_at
    if attempt.pool_devices:  # what nodes have reported of their devices counts for nothing
        held, began = Counter({job.device_request: attempt.pool_devices}), attempt.running_at
    ended = attempt.ended_at
    assert ended is not None
    usage.add(session, job.owner, held, began=ended - ran_us, ended=ended)
    use = attempt_use.take(session, attempt.id)
    known = {} if use is None else {"cuda": (use.measured_us, use.busy_us, use.idle_us)}
    began = ended if began is None else began
    parts = [Held(kind, count, began, ended, *known.get(kind, ())) for kind, count in held.items()]
    device_days.add(session, job.owner, job.labels, parts)
