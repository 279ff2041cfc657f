"""Stars: each user's own mark on jobs that the user may read."""

from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from store.announcement import announcement_of
from store.tables import Base, Job, Star
from store.team import access
from store.team.callers import Caller

_JOBS = Base.metadata.tables["jobs"]


class _names(FunctionElement[str]):
    """All names of a column, with spaces between them, which no name of a user has."""

    inherit_cache = True


@compiles(_names, "sqlite")
def _names_sqlite(element: _names, compiler: SQLCompiler, **options: Any) -> str:
    return f"group_concat({compiler.process(element.clauses, **options)}, ' ')"


@compiles(_names, "postgresql")
def _names_postgresql(element: _names, compiler: SQLCompiler, **options: Any) -> str:
    return f"string_agg({compiler.process(element.clauses, **options)}, ' ')"


_BY = _names(Star.who)
STARRED_BY = select(_BY).where(Star.job_id == _JOBS.c.id).correlate(_JOBS).scalar_subquery().label("starred_by")
"""The column of `who_of`: who has starred a job."""


def set_star(session: Session, job_id: str, caller: Caller, *, starred: bool) -> None:
    """Stars the job for the caller, or removes the star. Repeating it changes nothing. Raises NotFound."""
    access.lock_readable(session, job_id, caller)
    mine = (Star.who == caller.name, Star.job_id == job_id)
    is_starred = session.scalar(select(Star.job_id).where(*mine)) is not None
    if starred and not is_starred:
        session.execute(insert(Star).values(who=caller.name, job_id=job_id))
    elif is_starred and not starred:
        session.execute(delete(Star).where(*mine), execution_options={"synchronize_session": False})
    announcement_of(session).mark_changed(job_id)


def starred_by(session: Session, job_id: str) -> str | None:
    """Returns the value of `STARRED_BY` of a job."""
    return session.scalar(select(_BY).where(Star.job_id == job_id))


def who_of(starred_by: str | None) -> frozenset[str]:
    """Returns the users that the column `STARRED_BY` names."""
    return frozenset((starred_by or "").split())


def is_starred(caller: Caller) -> ColumnElement[bool]:
    """Returns the condition that the caller has starred a job."""
    return Job.id.in_(select(Star.job_id).where(Star.who == caller.name))
