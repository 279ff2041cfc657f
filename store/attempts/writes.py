"""Writes of the worker that owns an attempt. They raise StaleClaim after the attempt has ended or been rescued.

All of them raise Unavailable, too.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session

from store.attempts import rows as attempts
from store.attempts.facts import NOTHING_BEGUN, Begun, Claim
from store.jobs import jobs
from store.output.facts import DEFAULTS, Answer, Batch, OutputLimits
from store.store import Store
from torchyard.contract.errors import StaleClaim
from torchyard.contract.job import EndReason, JobState, Reason
from torchyard.contract.records import ExitReport


def mark_prepared(store: Store, claim: Claim, *, start_step: int, is_known: bool = True) -> None:
    """Records the step that the attempt resumes from, before its processes start. `is_known`: as in the rows."""
    with store.write("mark_prepared") as session:
        attempts.mark_prepared(session, claim, start_step=start_step, is_known=is_known)


def set_environment(store: Store, claim: Claim, environment: dict[str, Any]) -> None:
    """Records the environment of the host in which the attempt is to run."""
    with store.write("environment") as session:
        attempts.set_environment(session, claim, environment)


def set_reason(store: Store, claim: Claim, reason: Reason) -> None:
    """Stores what the attempt does before its processes start. Does nothing for a job that runs."""
    with store.write("reason") as session:
        attempts.set_reason(session, claim, reason)


def mark_begun(store: Store, claim: Claim, begun: Begun) -> None:
    """Stores how far the attempt has come. Nothing changes if an earlier call, whose answer was lost, has done it."""
    with store.write(purpose="mark_launched" if begun.running is None else "mark_running") as session:
        _store_begun(session, claim, begun)


def record(
    store: Store,
    claim: Claim,
    batch: Batch,
    *,
    seq: int,
    limits: OutputLimits = DEFAULTS,
    begun: Begun = NOTHING_BEGUN,
) -> frozenset[str]:
    """Stores a batch exactly once, even if the answer to an earlier call was lost. Returns the outputs that are cut.

    `seq` is the number of batches stored before it. `begun` is stored first, in the same transaction.
    """
    with store.write("store_batch") as session:
        _store_begun(session, claim, begun)
        try:
            return attempts.record(session, claim, batch, seq=seq, limits=limits)
        except StaleClaim:
            row = attempts.read_open(session, claim)
            if row.relay_seq != seq + 1:
                raise
            return frozenset(row.cut.split())


def store_stacks(store: Store, claim: Claim, answer: Answer) -> None:
    """Stores the answer to a request for the stacks of the ranks."""
    with store.write("store_stacks") as session:
        attempts.store_stacks(session, claim, answer)


def end(
    store: Store,
    claim: Claim,
    report: ExitReport,
    *,
    requested_stops: Collection[EndReason] = (),
    begun: Begun = NOTHING_BEGUN,
) -> JobState:
    """Closes the attempt and returns the job's next state. Call it when all is stored and no process is left.

    `requested_stops` are the stops that the worker has requested. `begun` is as in `record`.
    """
    with store.write("end") as session:
        _store_begun(session, claim, begun)
        return attempts.end(session, claim, report, requested_stops=requested_stops)


def _store_begun(session: Session, claim: Claim, begun: Begun) -> None:
    launcher = None if begun.launcher is None else dict(begun.launcher)
    if begun.running is not None and jobs.get(session, claim.job_id).state != JobState.RUNNING:
        attempts.mark_running(session, claim, reason=begun.running, launcher=launcher)
    elif launcher is not None:
        attempts.mark_launched(session, claim, launcher)
    if begun.nodes:
        attempts.hold_nodes(session, claim, begun.nodes)
