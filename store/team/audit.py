"""The audit: who did what. Rows are added in the transaction of the change, and never changed."""

from collections.abc import Iterator, Sequence
import json
import logging

from sqlalchemy import ColumnElement, func, insert, select
from sqlalchemy.orm import Session

from store.db import columns
from store.db.prepared import Prepared
from store.tables import AuditEntry, Base
from store.team.callers import Caller
from store.team.facts import AuditFilter, AuditPage
from store.team.limits import check_change
from torchyard.contract.team.views import AuditView
from torchyard.contract.wire.text import storable

MOST_SEARCHED = 100_000
"""Entries that one search looks at."""
_MOST_OBJECT_CHARACTERS = 300
_SLACK_US = 60_000_000
"""A transaction that was slow to end has an id that is later than those around its time."""
_COLUMNS = ("who", "token_id", "address", "action", "object", "outcome", "request_id")
_NEW = Prepared(insert(Base.metadata.tables["audit"]).inline(), columns=_COLUMNS)
_log = logging.getLogger("torchyard.audit")


_REPEATED = frozenset(
    {
        *(
            "job.change",
            "job.archive",
            "job.unarchive",
            "job.resume",
            "job.keep",
            "reach.open",
            "reach.meet",
            "sweep.resume",
            "sweep.promote",
        ),
        *("schedule.change", "model.add", "model.change", "secret.set", "token.make", "bundle.upload", "bundle.name"),
        *("target.add", "target.change", "target.test"),
    }
)
"""Changes that can be made without end, with an entry each, or that begin such a round. Others end or remove something,
or are limited where it is added: who may not add anything can still do those."""


def add(session: Session, caller: Caller, action: str, object: str, *, outcome: str = "ok") -> None:
    """Adds an entry, and logs it as one line of JSON. `outcome` is `ok` or the code of an error.

    Raises QuotaExceeded for a change that can be repeated without end, if too much is written for the caller.
    """
    if action in _REPEATED:
        check_change(session, caller.name)
    add_all(session, action, [(caller, object)], outcome=outcome)


def add_all(session: Session, action: str, done: Sequence[tuple[Caller, str]], *, outcome: str = "ok") -> None:
    """Adds an entry of the same action for each pair of caller and target, as `add` does."""
    rows = [_values(caller, action, object, outcome) for caller, object in done]
    _NEW.write(session, rows)
    for row in rows:
        _log.info("audit %s", json.dumps(row))  # JSON in ASCII escapes control characters


def list_entries(session: Session, where: AuditFilter, *, limit: int, before: int | None = None) -> AuditPage:
    """Returns at most `limit` entries, newest first; with `before` (an id), only older ones.

    It looks at `MOST_SEARCHED` entries at most, so that a filter that few meet costs no more than others: a page may
    have fewer entries, or none, and say where the search goes on.
    """
    if before is None:
        before = session.execute(select(func.coalesce(func.max(AuditEntry.id), 0) + 1)).scalar_one()
    if where.until is not None:
        before = _first_after(session, where.until + _SLACK_US, before=before)
    lowest = before - MOST_SEARCHED
    query = columns.select(AuditView, AuditEntry).order_by(AuditEntry.id.desc()).limit(limit + 1)
    rows = session.execute(query.where(AuditEntry.id < before, AuditEntry.id >= lowest, *_conditions(where)))
    entries = columns.views(AuditView, rows)
    if len(entries) > limit:
        return AuditPage(entries[:limit], entries[limit - 1].id)
    older = select(AuditEntry.id, AuditEntry.time).where(AuditEntry.id < lowest).order_by(AuditEntry.id.desc()).limit(1)
    row = session.execute(older).first()
    if row is None or (where.since is not None and row.time < where.since - _SLACK_US):
        return AuditPage(entries, None)
    return AuditPage(entries, row.id + 1)


def _conditions(where: AuditFilter) -> Iterator[ColumnElement[bool]]:
    equal = {AuditEntry.who: where.who, AuditEntry.object: where.object, AuditEntry.outcome: where.outcome}
    yield from (column == value for column, value in equal.items() if value is not None)
    if where.action is not None:
        family = AuditEntry.action.startswith(f"{where.action}.", autoescape=True)
        yield (AuditEntry.action == where.action) | family
    if where.since is not None:
        yield AuditEntry.time >= where.since
    if where.until is not None:
        yield AuditEntry.time <= where.until


def _first_after(session: Session, time: int, *, before: int) -> int:
    """Returns the id of the first entry after a time, `before` if there is none: ids and times rise together."""
    low, high = 0, before
    while low < high:
        middle = (low + high) // 2
        next_one = select(AuditEntry.id, AuditEntry.time).where(AuditEntry.id >= middle).order_by(AuditEntry.id)
        row = session.execute(next_one.limit(1)).first()
        if row is None or row.time > time:
            high = middle
        else:
            low = row.id + 1
    return low


def _values(caller: Caller, action: str, object: str, outcome: str) -> dict[str, str | None]:
    return {
        "who": caller.name,
        "token_id": caller.token_id,
        "address": caller.address,
        "action": action,
        "object": storable(object[:_MOST_OBJECT_CHARACTERS]),
        "outcome": outcome,
        "request_id": caller.request_id,
    }
