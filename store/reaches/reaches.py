"""Reaches as their users open, list and end them."""

from datetime import timedelta
import secrets

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.columns import to_time
from store.db.database import in_us, now_us
from store.ids import is_id, new_id
from store.jobs import jobs
from store.reaches.facts import OpenedReach
from store.tables import Attempt, Job, Reach
from store.team import access, audit, users
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.reach.orders import Order
from torchyard.contract.reach.proof import SECRET_BYTES
from torchyard.contract.reach.views import ReachView
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

MEETING = timedelta(seconds=30)
"""How long a meeting waits for both ends."""
MOST_OF_JOB, MOST_OF_USER = 100, 200
"""Reaches that are open at once."""
_TOLD = timedelta(minutes=1)
"""How long the row of an ended reach stays, for its worker to read it."""
_LONGEST_SHOWN = 100


def open_reach(
    session: Session, job_id: str, order: Order, *, caller: Caller, login: str = "", by_operators: bool = False
) -> OpenedReach:
    """Opens a reach into the attempt of the job that runs, and asks its worker to come to the first meeting.

    `login`: the digest of the session of a browser that asks. `by_operators`: whether operators may reach into the jobs
    of others. Raises NotFound, Forbidden, and Conflict for a job that does not run, or too many reaches.
    """
    check_allowed(session, job_id, caller, by_operators=by_operators)
    attempt = lock_running(session, job_id)
    _check_rank(session, attempt, order)
    users.lock(session, caller.name)  # the counts below would miss what another request adds meanwhile
    session.execute(delete(Reach).where(Reach.until <= now_us(), or_(Reach.user == caller.name, _of_job(job_id))))
    _check_room(session, job_id, caller.name)
    row = Reach(
        id=new_id("rch"),
        job_id=job_id,
        attempt_id=attempt.id,
        attempt=attempt.number,
        user=caller.name,
        role=caller.role,
        token_id=caller.token_id,
        session=login or None,
        order=order.to_dict(),
        secret=secrets.token_hex(SECRET_BYTES),
        until=now_us() + in_us(MEETING),
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    audit.add(session, caller, "reach.open", f"{row.id} of {job_id}: {shown(order)}")
    announcement_of(session).wake_workers()
    return _opened(row)


def meet_again(session: Session, reach_id: str, *, caller: Caller, login: str = "") -> OpenedReach:
    """Makes a further meeting of a reach, and asks its worker to come. An earlier one ends.

    Raises NotFound where the caller has no such reach any more.
    """
    again = {
        "meeting": Reach.meeting + 1,
        "secret": secrets.token_hex(SECRET_BYTES),
        "first": None,
        "place": None,
        "until": now_us() + in_us(MEETING),
        "role": caller.role,
        "token_id": caller.token_id,
        "session": login or None,
    }
    change = update(Reach).where(_is_own(reach_id, caller), is_open()).values(again).returning(Reach)
    row = session.scalars(change, execution_options={"populate_existing": True}).first()
    if row is None:
        raise _missing(reach_id)
    audit.add(session, caller, "reach.meet", f"{row.id} of {row.job_id}")
    access.announce(session, row.job_id)
    announcement_of(session).wake_workers()
    return _opened(row)


def list_open(session: Session, job_id: str, *, caller: Caller) -> list[ReachView]:
    """Returns the open reaches into a job, the oldest first: all for its owner and administrators, else one's own.

    Raises NotFound.
    """
    job = access.require_job(session, job_id, caller)
    query = select(Reach).where(_of_job(job_id), is_open()).order_by(Reach.id)
    if caller.role is not Role.ADMIN and job.owner != caller.name:
        query = query.where(Reach.user == caller.name)
    return [_view(row) for row in session.scalars(query)]


def end(session: Session, reach_id: str, *, caller: Caller) -> None:
    """Ends a reach and its program: one's own, or one into one's own job. Raises NotFound."""
    own_jobs = select(Job.id).where(Job.owner == caller.name)
    ended = session.scalar(
        update(Reach)
        .where(Reach.id == reach_id, or_(Reach.user == caller.name, Reach.job_id.in_(own_jobs)), is_open())
        .values(ended_at=now_us(), secret=None, until=now_us() + in_us(_TOLD))
        .returning(Reach.job_id),
        execution_options={"synchronize_session": False},
    )
    if ended is None:
        raise _missing(reach_id)
    audit.add(session, caller, "reach.end", f"{reach_id} of {ended}")
    access.announce(session, ended)
    announcement_of(session).wake_workers()


def check_allowed(session: Session, job_id: str, caller: Caller, *, by_operators: bool) -> None:
    """Raises NotFound and Forbidden unless the caller may reach into the job."""
    job = access.require_job(session, job_id, caller) if not by_operators else _listed(session, job_id, caller)
    if job.owner == caller.name or (by_operators and caller.role in {Role.OPERATOR, Role.ADMIN}):
        return
    raise Forbidden(f"job {job_id} belongs to {job.owner}: only its owner may connect to it")


def lock_running(session: Session, job_id: str) -> Attempt:
    """Returns the open attempt of a running job, which does not end until the transaction does. Raises Conflict."""
    query = select(Attempt).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None)).with_for_update(key_share=True)
    attempt = session.scalars(query.execution_options(populate_existing=True)).first()
    state = jobs.require(session, job_id).state
    if attempt is None or state != JobState.RUNNING:
        raise Conflict(f"job {job_id} is {state}: only running jobs accept connections")
    return attempt


def is_open() -> ColumnElement[bool]:
    """Returns the condition that a reach goes on, whether its client is there or may come again."""
    return Reach.ended_at.is_(None) & (Reach.until > now_us())


def shown(order: Order) -> str:
    """Returns in some words what an order starts. It has no argument, which may be a secret."""
    if order.kind != "program":
        return order.kind
    return f"program {order.argv[0][:_LONGEST_SHOWN]}" if order.argv else "shell"


def _listed(session: Session, job_id: str, caller: Caller) -> Job:
    job = session.scalars(select(Job).where(Job.id == job_id, access.match_listed(caller))).first()
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def _check_rank(session: Session, attempt: Attempt, order: Order) -> None:
    ranks = attempt.pool_devices or len(jobs.require(session, attempt.job_id).devices)
    if order.rank >= ranks:
        raise Conflict(f"job {attempt.job_id} has no rank {order.rank}: its {ranks} ranks are 0 to {ranks - 1}")


def _check_room(session: Session, job_id: str, user: str) -> None:
    for condition, most, whose in (
        (_of_job(job_id), MOST_OF_JOB, f"job {job_id}"),
        (Reach.user == user, MOST_OF_USER, user),
    ):
        count = session.execute(select(func.count()).select_from(Reach).where(condition, is_open())).scalar_one()
        if count >= most:
            raise Conflict(f"{whose} has {count} open connections to jobs; the maximum is {most}: close some first")


def _of_job(job_id: str) -> ColumnElement[bool]:
    return Reach.job_id == job_id


def _is_own(reach_id: str, caller: Caller) -> ColumnElement[bool]:
    return (Reach.id == reach_id) & (Reach.user == caller.name)


def _missing(reach_id: str) -> NotFound:
    named = reach_id if is_id(reach_id, "rch") else repr(reach_id[:100])
    return NotFound(f"you have no open reach {named}")


def _opened(row: Reach) -> OpenedReach:
    assert row.secret is not None
    return OpenedReach(row.id, row.job_id, row.attempt, row.meeting, row.secret, row.until)


def _view(row: Reach) -> ReachView:
    order = Order.from_dict(row.order)
    return ReachView(
        id=row.id,
        job_id=row.job_id,
        attempt=row.attempt,
        user=row.user,
        kind=order.kind,
        what=shown(order),
        rank=order.rank,
        meeting=row.meeting,
        created_at=to_time(row.created_at),
    )
