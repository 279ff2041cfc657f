"""Limits of users: how much of each resource one may use. `store.team.quotas` sets them, and counts what is used."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared, among, texts
from store.tables import Base
from store.team import stored_counts
from torchyard.contract.errors import QuotaExceeded
from torchyard.contract.team.roles import Resource

_USERS, _QUOTAS = Base.metadata.tables["users"], Base.metadata.tables["quotas"]
_OF_USER = and_(_QUOTAS.c.kind == "user", _QUOTAS.c.name == _USERS.c.name)
_OF_ROLE = and_(_QUOTAS.c.kind == "role", _QUOTAS.c.name == _USERS.c.role)

# Built once, and of tables: every submission executes it, and the same query of classes takes twice as long.
_LIMITS = Prepared(
    select(_USERS.c.name, _QUOTAS.c.resource, _QUOTAS.c.limit)
    .join_from(_USERS, _QUOTAS, or_(_OF_USER, _OF_ROLE))
    .where(among(_USERS.c.name, "owners"))
    .order_by(_QUOTAS.c.kind)  # "role" before "user", which replaces it
)


def find_limits(session: Session, owner: str) -> dict[Resource, int]:
    """Returns the limits of a user, without the resources that are unlimited."""
    return find_limits_of(session, [owner]).get(owner, {})


def find_limits_of(session: Session, owners: Collection[str]) -> dict[str, dict[Resource, int]]:
    """Returns the limits of users, without the resources that are unlimited. Users without any are left out."""
    return _by_owner(_LIMITS.read(session, {"owners": texts(owners)}))


def find_limit(session: Session, owner: str, resource: Resource) -> int | None:
    """Returns how much of the resource the user may use; None without a limit. A user's row replaces the role's."""
    return find_limits(session, owner).get(resource)


def check_change(session: Session, who: str) -> None:
    """Raises QuotaExceeded if what requests have written for the user is more than all that the user may store.

    Whoever has too many files may still change what is there: those are stopped where they grow.
    """
    most = find_limit(session, who, Resource.STORED_BYTES)
    if most is None:
        return
    if (written := stored_counts.count(session, who).written) > most + stored_counts.FREE_WRITTEN_BYTES:
        raise QuotaExceeded(
            f"the records of {who} (specs, notes, events, audit) use {written} of {most} bytes: "
            "delete jobs, or ask an administrator to raise the quota (audit entries are never "
            "deleted)"
        )


def _by_owner(rows: Iterable[Sequence[Any]]) -> dict[str, dict[Resource, int]]:
    by_owner: dict[str, dict[Resource, int | None]] = {}
    for owner, resource, limit in rows:
        by_owner.setdefault(owner, {})[Resource(resource)] = limit
    return {
        owner: {resource: limit for resource, limit in limits.items() if limit is not None}
        for owner, limits in by_owner.items()
    }
