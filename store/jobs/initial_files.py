"""What the weights were that jobs start from. Their files are kept until those jobs end."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.orm import Session

from store.blobs import garbage
from store.db import columns
from store.jobs.initial_weights_facts import InitialFacts
from store.tables import InitialWeights, Job

_TOLD = columns.select_fields(InitialFacts, InitialWeights)


def add_all(session: Session, initial: Mapping[str, InitialFacts]) -> None:
    """Notes what new jobs start from, by the jobs' ids."""
    rows = [
        {"job_id": job_id, **{name: getattr(facts, name) for name in InitialFacts.__slots__}, "files": [*facts.files]}
        for job_id, facts in initial.items()
    ]
    if rows:
        session.execute(insert(InitialWeights), rows)


def of_job(session: Session, job_id: str) -> InitialFacts | None:
    """Returns what the job starts from, if its spec names weights."""
    row = session.execute(select(*_TOLD).where(InitialWeights.job_id == job_id)).mappings().first()
    return None if row is None else InitialFacts(**row)  # pyrefly: ignore[bad-unpacking, missing-argument] they are its fields


def release(session: Session, job: Job) -> None:
    """Leaves the files to the garbage collector: the job has ended."""
    if not job.spec.get("init_from"):
        return
    mine = InitialWeights.job_id == job.id
    garbage.add(session, session.scalars(select(InitialWeights.files).where(mine)))
    change = update(InitialWeights).where(mine).values(files=[], size=0)
    session.execute(change, execution_options={"synchronize_session": False})


def starts_from(job_id: str) -> ColumnElement[bool]:
    """Returns the condition that a job starts from what that job has saved."""
    return Job.id.in_(select(InitialWeights.job_id).where(InitialWeights.source_job == job_id))
