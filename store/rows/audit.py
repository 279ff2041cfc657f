"""The audit: who did what. Rows are added in the transaction of the change, and never changed."""

from collections.abc import Sequence
import json
import logging

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from store.db.prepared import Prepared
from store.db.tables import AuditEntry, Base
from store.facts.callers import Caller
from store.facts.team import AuditFacts, AuditFilter
from store.rows import columns
from torchyard.contract.text import storable

_MOST_OBJECT_CHARACTERS = 300
_COLUMNS = ("who", "token_id", "address", "action", "object", "outcome", "request_id")
_NEW = Prepared(insert(Base.metadata.tables["audit"]).inline(), columns=_COLUMNS)
_log = logging.getLogger("torchyard.audit")


def add(session: Session, caller: Caller, action: str, object: str, *, outcome: str = "ok") -> None:
    """Adds an entry, and logs it as one line of JSON. `outcome` is `ok` or the code of an error."""
    add_all(session, action, [(caller, object)], outcome=outcome)


def add_all(session: Session, action: str, done: Sequence[tuple[Caller, str]], *, outcome: str = "ok") -> None:
    """Adds an entry of the same action for each pair of caller and target, as `add` does."""
    rows = [_values(caller, action, object, outcome) for caller, object in done]
    _NEW.write(session, rows)
    for row in rows:
        _log.info("audit %s", json.dumps(row))  # JSON in ASCII escapes control characters


def entries(session: Session, where: AuditFilter, *, limit: int, before: int | None = None) -> Sequence[AuditFacts]:
    """Returns entries, newest first; with `before` (an id), only older ones."""
    query = select(*columns.of(AuditFacts, AuditEntry)).order_by(AuditEntry.id.desc()).limit(limit)
    equal = {AuditEntry.who: where.who, AuditEntry.action: where.action, AuditEntry.object: where.object}
    query = query.where(*(column == value for column, value in equal.items() if value is not None))
    rows = session.execute(query if before is None else query.where(AuditEntry.id < before))
    return [AuditFacts(*row) for row in rows]


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
