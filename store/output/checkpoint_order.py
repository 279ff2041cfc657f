"""The order of checkpoints in SQL, as it is in `store.output.checkpoints_facts`."""

from typing import Any

from sqlalchemy import Select

from store.output.checkpoints_facts import ORDER
from store.tables import Checkpoint

COLUMNS = tuple(getattr(Checkpoint, name) for name in ORDER)
"""Those of the order, oldest first."""
_NEWEST_FIRST = tuple(column.desc() for column in COLUMNS)


def newest_first(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Returns the query of checkpoints in this order."""
    return query.order_by(*_NEWEST_FIRST)


def resumed_first(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Returns the query with those alone that a job may go on from, the one that it does first."""
    return query.where(~Checkpoint.damaged).order_by(Checkpoint.source.is_not(None), *_NEWEST_FIRST)
