"""The meetings of reaches, as the service that both ends come to reads and writes them."""

from datetime import timedelta

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from store.attempts import use
from store.db.database import in_us, now_us
from store.reaches.facts import Came, End, MeetingFacts
from store.reaches.orders import is_permitted
from store.reaches.reaches import is_open
from store.tables import Reach
from store.team import audit
from store.team.callers import Caller

LASTS = timedelta(hours=12)
"""How long what runs in a terminal waits for its client. While a client is there, this begins anew with each note."""
_LASTS_WITHOUT_TERMINAL = timedelta(minutes=1)


def find_awaited(session: Session, reach_id: str, *, meeting: int) -> MeetingFacts | None:
    """Returns a meeting that awaits an end, with its secret."""
    named = (Reach.id == reach_id, Reach.meeting == meeting, Reach.secret.is_not(None))
    row = session.scalars(select(Reach).where(*named, is_open(), is_permitted())).first()
    if row is None or row.secret is None:
        return None
    return MeetingFacts(
        reach_id=row.id,
        job_id=row.job_id,
        attempt_id=row.attempt_id,
        meeting=row.meeting,
        secret=row.secret,
        user=row.user,
        role=row.role,
        token_id=row.token_id,
        has_terminal=row.order.get("terminal") is not None,
    )


def come(session: Session, facts: MeetingFacts, end: End, *, place: str) -> Came | None:
    """Notes that an end has come, which has proved that it knows the secret. The second one removes the secret.

    `place`: where it waits if it is the first. Returns None if the meeting does not await this end.
    """
    awaited = select(Reach).where(_is(facts), Reach.secret == facts.secret, is_permitted())
    row = session.scalars(awaited.with_for_update(of=Reach).execution_options(populate_existing=True)).first()
    if row is None or row.first == end:
        return None
    if row.first is None:
        row.first, row.place = end, place
        return Came(is_first=True, place=place)
    found = Came(is_first=False, place=row.place or "")
    row.first = row.place = row.secret = None
    row.has_started = True
    session.execute(update(Reach).where(_is(facts)).values(until=now_us() + in_us(LASTS)))
    return found


def is_on(session: Session, facts: MeetingFacts) -> bool:
    """Returns whether the meeting may go on: nobody has ended it, and its user may still have it."""
    return session.scalar(select(Reach.id).where(_is(facts), is_permitted())) is not None


def note(session: Session, facts: MeetingFacts, *, has_input: bool) -> None:
    """Notes that the client is there, and whether it has sent anything of late: then its job is in use."""
    session.execute(update(Reach).where(_is(facts)).values(until=now_us() + in_us(LASTS)))
    if has_input:
        use.note_input(session, facts.attempt_id)


def leave(session: Session, facts: MeetingFacts, *, to_job: int, from_job: int, caller: Caller) -> None:
    """Notes that the client has gone, and how many bytes were passed on. It may come again for a while."""
    lasts = LASTS if facts.has_terminal else _LASTS_WITHOUT_TERMINAL
    session.execute(update(Reach).where(_is(facts)).values(until=now_us() + in_us(lasts)))
    passed = f"{to_job} bytes to the job, {from_job} from it"
    audit.add(session, caller, "reach.leave", f"{facts.reach_id} of {facts.job_id}: {passed}")


def finish(session: Session, facts: MeetingFacts) -> None:
    """Removes a reach of which nothing runs any more, as its worker says."""
    named = (Reach.id == facts.reach_id, Reach.meeting == facts.meeting)
    session.execute(delete(Reach).where(*named), execution_options={"synchronize_session": False})


def _is(facts: MeetingFacts) -> ColumnElement[bool]:
    return (Reach.id == facts.reach_id) & (Reach.meeting == facts.meeting) & is_open()
