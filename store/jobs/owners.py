"""For whom the service acts without a request: the owner of a schedule, a sweep or a job that waits for others."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.tables import User
from store.team.callers import BOOTSTRAP, SERVICE, Caller
from torchyard.contract.errors import OwnerDisabled
from torchyard.contract.team import Role, Scope


def acting(session: Session, owner: str) -> Caller:
    """Returns the user as they are now, for a job of theirs that nobody submits.

    Raises OwnerDisabled if they may not submit one: they are disabled, a viewer, or there is no such user.
    """
    if owner == BOOTSTRAP:
        return SERVICE
    found = session.execute(select(User.role, User.disabled_at).where(User.name == owner)).first()
    if found is None:
        raise OwnerDisabled(f"there is no user {owner} any more")
    if found.disabled_at is not None:
        raise OwnerDisabled(f"the user {owner} is disabled")
    role = Role(found.role)
    if Scope.JOBS_WRITE not in role.scopes:
        raise OwnerDisabled(f"the user {owner} is a {role}, who may submit no jobs")
    return Caller(owner, role)
