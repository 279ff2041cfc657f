"""What a table of jobs reads beyond a list of them, a part at a time. All of them raise Unavailable.

They are generators: no transaction is open when one yields.
"""

from collections.abc import Generator, Iterator, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.database import Snapshots
from store.db.tables import Job
from store.facts.callers import Caller
from store.facts.columns import KnownColumns
from store.rows import access, known_columns, listing
from torchyard.contract.filters import JobQuery

_KNOWN_OF = 500
"""The newest jobs of a list of which the columns are told."""
_SPECS_AT_ONCE = 50


def columns(store: Snapshots, where: JobQuery, *, caller: Caller) -> Generator[None, None, KnownColumns]:
    """Returns which columns the newest jobs of the list have that the caller may read."""
    with store.read() as session:
        ids = _newest(session, where, caller, limit=_KNOWN_OF)
    found = known_columns.Finding()
    for some in _parts(ids, _SPECS_AT_ONCE):
        with store.read() as session:
            found.add(session, some)
        yield
    return found.columns()


def _newest(session: Session, where: JobQuery, caller: Caller, *, limit: int) -> Sequence[str]:
    """Returns the ids of the newest jobs of the list that the caller may read."""
    query = select(Job.id).where(access.readable(caller), *listing.conditions(session, where, caller))
    return session.scalars(query.order_by(Job.id.desc()).limit(limit)).all()


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[first : first + size] for first in range(0, len(ids), size))
