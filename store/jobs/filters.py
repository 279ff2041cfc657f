"""Which jobs a filter of lists matches, as conditions of queries."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, func, or_
from sqlalchemy.orm import Session

from store.jobs import initial_files, stars
from store.tables import Job
from store.team import access
from store.team.callers import Caller, lists_unreadable
from torchyard.contract.jobs.filters import JobFilter, JobQuery

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def conditions_of(session: Session, where: JobQuery, caller: Caller) -> list[ColumnElement[bool]]:
    """Returns the conditions that a job is in the list of this filter, for queries that need few of its jobs."""
    return [*matches(where, caller), *is_created_within(where), *finds_grams(session, where)]


def matches(where: JobFilter, caller: Caller) -> list[ColumnElement[bool]]:
    """Returns the conditions that a job meets the filter and is in the lists of the caller."""
    # Neither is shown in the rows of jobs that the caller may only list, so it must not find them either.
    withheld = where.labels or where.model_fields_set & {"init_from", "retry_of", "sweep", "schedule"}
    conditions = [access.match_readable(caller) if withheld else access.match_listed(caller)]
    equal = {"owner": Job.owner, "name": Job.name, "trainer": Job.trainer, "schedule": Job.schedule_id}
    equal["retry_of"] = Job.retry_of
    conditions += [column == getattr(where, name) for name, column in equal.items() if name in where.model_fields_set]
    if "init_from" in where.model_fields_set:
        conditions.append(initial_files.starts_from(where.init_from))
    if "sweep" in where.model_fields_set:
        conditions.append(Job.sweep_id == where.sweep)
    conditions.append(Job.archived_at.is_not(None) if where.archived else Job.archived_at.is_(None))
    if "starred" in where.model_fields_set:
        conditions.append(stars.is_starred(caller) if where.starred else ~stars.is_starred(caller))
    if where.state:
        conditions.append(Job.state.in_(where.state))
    if "q" in where.model_fields_set:
        conditions += _search(where.q, caller)
    return [*conditions, *(Job.labels[key].as_string() == value for key, value in where.labels)]


def is_created_within(where: JobQuery) -> list[ColumnElement[bool]]:
    """Returns the conditions that a job was submitted in the time that the filter names, if it names any."""
    conditions: list[ColumnElement[bool]] = []
    if "created_after" in where.model_fields_set:
        conditions.append(Job.created_at > _microseconds(where.created_after))
    if "created_before" in where.model_fields_set:
        conditions.append(Job.created_at < _microseconds(where.created_before))
    return conditions


def finds_grams(session: Session, where: JobFilter) -> list[ColumnElement[bool]]:
    """Returns the part of `_search` that PostgreSQL's trigram index answers, for a text of three characters or more."""
    # Only where few jobs are asked for: where most are found, PostgreSQL would call the function for each of them.
    text = where.q.casefold() if "q" in where.model_fields_set else ""
    if len(text) < 3 or session.get_bind().dialect.name != "postgresql":
        return []
    return [func.search_grams(Job.search_text).op("@>", is_comparison=True)(func.search_grams(text))]


def _search(q: str, caller: Caller) -> list[ColumnElement[bool]]:
    text = q.casefold()
    conditions = [Job.search_text.contains(text, autoescape=True)]
    if lists_unreadable(caller):
        shown = [func.lower(column).contains(text, autoescape=True) for column in (Job.name, Job.owner, Job.id)]
        conditions.append(or_(access.match_readable(caller), *shown))
    return conditions


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
