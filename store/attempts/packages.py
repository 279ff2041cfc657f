"""The packages that a job had: one row, of the newest attempt that reported them."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.db.upsert import upsert
from store.output.facts import JobPackagesFacts
from store.tables import JobPackages


def put(session: Session, job_id: str, attempt: int, packages: Mapping[str, str]) -> None:
    """Stores them in place of those before."""
    values = {"attempt": attempt, "document": dict(packages)}
    insert = upsert(session, JobPackages).values(job_id=job_id, **values)
    session.execute(insert.on_conflict_do_update(index_elements=[JobPackages.job_id], set_=values))


def find(session: Session, job_id: str) -> JobPackagesFacts | None:
    """Returns them, or None before an attempt has reported any."""
    query = select(JobPackages.attempt, JobPackages.document).where(JobPackages.job_id == job_id)
    row = session.execute(query).first()
    return None if row is None else JobPackagesFacts(row.attempt, row.document)
