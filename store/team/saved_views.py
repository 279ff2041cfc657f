"""Views: lists of jobs that users keep under a name, for themselves or for the team."""

from collections.abc import Sequence

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from store.db import columns
from store.db.database import now_us
from store.tables import SavedView
from store.team import audit, users
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.team.requests import NewView
from torchyard.contract.team.roles import Role
from torchyard.contract.team.views import SavedViewView

MOST_VIEWS = 100
"""Of one user."""
MOST_LISTED = 500
"""Of one's own and those of the team together."""


def put(session: Session, wanted: NewView, *, caller: Caller) -> SavedViewView:
    """Saves a view of the caller. It replaces one of the same name. Raises Conflict if the user has too many."""
    owner = caller.name
    users.lock(session, owner)  # the count below would miss what another request adds meanwhile
    row = session.get(SavedView, (owner, wanted.name))
    if row is None:
        own = select(func.count()).select_from(SavedView).where(SavedView.owner == owner)
        count = session.execute(own).scalar_one()
        if count >= MOST_VIEWS:
            raise Conflict(f"{owner} has {count} views; the maximum is {MOST_VIEWS}: delete some first")
        row = SavedView(owner=owner, name=wanted.name)
        session.add(row)
    row.query, row.visibility, row.updated_at = wanted.query, wanted.visibility, now_us()
    session.flush()
    session.refresh(row)
    audit.add(session, caller, "view.save", f"{owner}/{wanted.name}")
    return columns.read(SavedViewView, row)


def list_readable(session: Session, *, caller: Caller) -> Sequence[SavedViewView]:
    """Returns the caller's views by name, and then those of the team by owner and name."""
    is_own = SavedView.owner == caller.name
    query = columns.select(SavedViewView, SavedView).where(or_(is_own, SavedView.visibility == "team"))
    ordered = query.order_by(is_own.desc(), SavedView.owner, SavedView.name).limit(MOST_LISTED)
    return columns.views(SavedViewView, session.execute(ordered))


def remove(session: Session, owner: str, name: str, *, caller: Caller) -> None:
    """Removes a view, as its owner or as an administrator. Raises NotFound, and Forbidden for another's of the team."""
    row = session.get(SavedView, (owner, name))
    is_changeable = owner == caller.name or caller.role is Role.ADMIN
    if row is None or not (is_changeable or row.visibility == "team"):
        raise NotFound(f"{owner} has no view {name!r}")
    if not is_changeable:
        raise Forbidden(f"the view {name!r} belongs to {owner}: only its owner and administrators may remove it")
    session.execute(delete(SavedView).where(SavedView.owner == owner, SavedView.name == name))
    audit.add(session, caller, "view.delete", f"{owner}/{name}")
