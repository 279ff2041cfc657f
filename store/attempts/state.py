"""The open row of an attempt: what its worker reads and changes of it.

The row is the fence: every write of a worker about an attempt that it has claimed locks it first, by `fenced_update`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, select, update
from sqlalchemy.orm import Session

from store.attempts import node_devices
from store.attempts.facts import Begun, Claim, NodeHeld
from store.db.database import now_us
from store.jobs import jobs
from store.output.facts import Answer
from store.output.limits import Counted
from store.tables import Attempt
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import JobState, Reason

RAN_US = func.coalesce(now_us() - case((Attempt.pool_devices > 0, Attempt.running_at), else_=Attempt.started_at), 0)
"""How long an open attempt has run: in a pool since its ranks are there, as it may wait in the cluster's own queue."""


def find(session: Session, claim: Claim) -> Attempt:
    """Returns the claim's row, ended or not. Raises StaleClaim if the job was deleted."""
    query = select(Attempt).where(is_row_of(claim)).execution_options(populate_existing=True)
    row = session.scalars(query).first()
    if row is None:
        raise StaleClaim(f"job {claim.job_id} was deleted")
    return row


def measure_age(session: Session, row: Attempt) -> timedelta:
    """Returns how much of its time limit the attempt has used."""
    us = session.execute(select(RAN_US).where(Attempt.id == row.id)).scalar_one()
    return timedelta(microseconds=us)


def mark_prepared(session: Session, claim: Claim, *, start_step: int, is_known: bool = True) -> None:
    """Records the step that the attempt resumes from, before its processes start. Raises StaleClaim.

    `is_known`: whether the program goes on there. Else the first step that it logs says where it does.
    """
    fenced_update(session, claim, start_step=start_step, hides_after=start_step if is_known else None)


def set_environment(session: Session, claim: Claim, environment: dict[str, Any]) -> None:
    """Records the environment in which the attempt is to run. Raises StaleClaim."""
    fenced_update(session, claim, environment=environment)


def set_reason(session: Session, claim: Claim, reason: Reason) -> None:
    """Stores why the claim's job is starting, unless it has come up. Raises StaleClaim."""
    fenced_update(session, claim)
    jobs.set_reason(session, claim.job_id, JobState.STARTING, reason)


def find_open(session: Session, claim: Claim) -> Attempt:
    """Returns the claim's row. Raises StaleClaim as writes for the claim do."""
    row = find(session, claim)
    if row.ended_at is not None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} has ended")
    if row.holder != claim.holder:
        raise StaleClaim(f"another daemon has attempt {claim.number} of job {claim.job_id}")
    return row


def mark_launched(session: Session, claim: Claim, launcher: dict[str, Any]) -> None:
    """Stores the engine's handle, by which a later daemon finds the attempt's processes. Raises StaleClaim."""
    fenced_update(session, claim, launcher=launcher)


def hold_nodes(session: Session, claim: Claim, nodes: Sequence[NodeHeld]) -> None:
    """Stores what a cluster has given to the attempt. Repeating it changes nothing. Raises StaleClaim."""
    fenced_update(session, claim)
    node_devices.hold(session, find(session, claim), nodes)


def mark_running(session: Session, claim: Claim, *, reason: Reason, launcher: dict[str, Any] | None = None) -> None:
    """Moves the job to `running`, when the process of every rank exists. Raises StaleClaim.

    `launcher`: what `mark_launched` stores, if it is not stored yet.
    """
    started = {} if launcher is None else {"launcher": launcher}
    fenced_update(session, claim, running_at=now_us(), **started)
    if jobs.transition(session, claim.job_id, JobState.RUNNING, reason=reason) is None:
        raise StaleClaim(f"job {claim.job_id} is not starting")


def store_begun(session: Session, claim: Claim, begun: Begun) -> None:
    """Stores how far the attempt has come. Repeating it changes nothing. Raises StaleClaim."""
    launcher = None if begun.launcher is None else dict(begun.launcher)
    if begun.running is not None and jobs.require(session, claim.job_id).state != JobState.RUNNING:
        mark_running(session, claim, reason=begun.running, launcher=launcher)
    elif launcher is not None:
        mark_launched(session, claim, launcher)
    if begun.nodes:
        hold_nodes(session, claim, begun.nodes)


def store_stacks(session: Session, claim: Claim, answer: Answer) -> None:
    """Stores the stacks of the ranks, and removes the request that they answer. Raises StaleClaim."""
    # A request that came later stays.
    pending = func.nullif(Attempt.stacks_requested_at, answer["requested_at"])
    fenced_update(session, claim, stacks=answer, stacks_requested_at=pending)


def fenced_update(session: Session, claim: Claim, *conditions: Any, **values: Any) -> Counted:
    """Returns what the row has of the attempt's output."""
    # An update without values still locks the row: the attempt cannot end before the caller's transaction does.
    taken = session.execute(
        update(Attempt)
        .where(is_open(claim), *conditions)
        .values(**(values or {"relay_seq": Attempt.relay_seq}))
        .returning(Attempt.log_bytes, Attempt.message_bytes, Attempt.point_bytes, Attempt.cut)
    ).first()
    if taken is None:
        raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} no longer belongs to this worker")
    return Counted(*taken)


def is_open(claim: Claim) -> ColumnElement[bool]:
    """Returns the condition that the attempt is open, and that who has the claim may write for it."""
    return and_(is_row_of(claim), Attempt.ended_at.is_(None), Attempt.holder.is_not_distinct_from(claim.holder))


def is_row_of(claim: Claim) -> ColumnElement[bool]:
    # SQLite gives the id of a deleted attempt to a new one, and a remote worker may send any claim: all must match.
    named = (Attempt.job_id == claim.job_id, Attempt.number == claim.number, Attempt.worker_id == claim.worker_id)
    return and_(Attempt.id == claim.attempt_id, *named)
