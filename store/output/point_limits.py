"""What limits the points of an attempt besides its own: other attempts of the job, and the owner's quota."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.output.limits import OutputMeter
from store.tables import Attempt, Job
from store.team import quotas


def note(session: Session, job_id: str, number: int, meter: OutputMeter, *, points: int) -> None:
    """Tells the meter of an attempt, before it takes so many points, what the job and its owner have stored.

    A job that is paused and resumed again and again has one limit, and one whose owner is over the quota stores few.
    """
    others = select(func.coalesce(func.sum(Attempt.point_bytes), 0))
    others = others.where(Attempt.job_id == job_id, Attempt.number != number)
    over_quota = False
    if meter.asks_for_quota(points):
        owner = session.execute(select(Job.owner).where(Job.id == job_id)).scalar_one()
        over_quota = quotas.bytes_left(session, owner) == 0
    meter.note_others(int(session.execute(others).scalar_one()), over_quota=over_quota)
