"""Quotas: how much of each resource a user may use, and uses."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.db.tables import Checkpoint, Job, Quota, User
from torchyard.contract.team import Resource


def limit_of(session: Session, owner: str, resource: Resource) -> int | None:
    """Returns how much of the resource the user may use; None without a limit. A user's row replaces the role's."""
    query = (
        select(Quota.limit)
        .join(
            User,
            ((Quota.kind == "user") & (Quota.name == User.name)) | ((Quota.kind == "role") & (Quota.name == User.role)),
        )
        .where(User.name == owner, Quota.resource == resource)
        .order_by(Quota.kind.desc())
    )
    found = session.execute(query).first()
    return None if found is None else found.limit


def stored_bytes(session: Session, owner: str) -> int:
    """Returns the bytes of the stored checkpoints of the user's jobs."""
    total = select(func.coalesce(func.sum(Checkpoint.size), 0)).join(Job, Job.id == Checkpoint.job_id)
    return int(session.execute(total.where(Job.owner == owner)).scalar_one())
