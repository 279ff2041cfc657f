"""Ends attempts in pools that no daemon serves, when somebody insists: nobody else would."""

import re

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.attempts import end
from store.attempts.facts import Claim
from store.db.database import now_us
from store.jobs import events as job_events
from store.tables import Attempt, Worker
from store.team import access
from store.team.callers import Caller
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason

_NAME = re.compile(r"[a-z0-9-]{1,100}")


def cancel(session: Session, job_id: str, caller: Caller) -> None:
    """Ends the attempt of a job that is cancelled by force, if it is in a pool whose daemon's lease has expired.

    The attempt may run on: its owner learns what would end it. Raises NotFound and Forbidden.
    """
    access.check_own(session, job_id, caller, ending=True)
    # Its row before the job's, as whoever ends an attempt locks them.
    attempts = select(Attempt, Worker.name).join(Worker, Worker.id == Attempt.worker_id)
    attempts = attempts.where(Attempt.job_id == job_id, Attempt.ended_at.is_(None), Attempt.pool_devices > 0)
    late = session.execute(attempts.where(Attempt.lease_until < now_us()).with_for_update(of=Attempt)).first()
    if late is None:
        return
    row = late.Attempt
    text = f"cancelled by force while no worker served pool {late.name}: {_left(row)}"
    job_events.append(session, job_id, type="message", attempt=row.number, data={"level": "warning", "text": text})
    report = ExitReport(reason=EndReason.CANCELLED, message=text)
    claim = Claim(row.id, job_id, row.number, row.worker_id, row.holder)
    end.end(session, claim, report, requested_stops={EndReason.CANCELLED})


def _left(row: Attempt) -> str:
    """Says what may be left of the attempt in the cluster."""
    name = (row.launcher or {}).get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return "no submission to its cluster is known"
    return f"its job {name} may still run there (`scancel --name={name}` ends it)"
