"""Pages of lists, and the cursors between them."""

from collections.abc import Callable, Sequence
import re
from typing import Annotated, Any, TypeVar

from fastapi import Query

from store.ids import Prefix, is_id
from store.queries.listing import QueueCursor
from torchyard.contract.errors import InvalidCursor
from torchyard.contract.views import Page, View

V = TypeVar("V", bound=View)

Limit = Annotated[int, Query(ge=1, le=1000, description="items a page")]
NUMBER = "^[0-9]{1,18}$"
"""How a place in a numbered list is written."""

_PLACE = re.compile(r"(-?[0-9]{1,3}):(.+)")


def _cursor(pattern: str) -> Any:
    # The pattern is documented only: what does not match is an error of its own, InvalidCursor.
    description = "`next` of the page before"
    return Query(max_length=200, description=description, json_schema_extra={"pattern": pattern})


AfterNumber = Annotated[str | None, _cursor(NUMBER)]
AfterJob = Annotated[str | None, _cursor("^job_[0-9a-f]{32}$")]
AfterCheckpoint = Annotated[str | None, _cursor("^ckpt_[0-9a-f]{32}$")]
AfterWorker = Annotated[str | None, _cursor("^wrk_[0-9a-f]{32}$")]
AfterPlace = Annotated[str | None, _cursor("^-?[0-9]{1,3}:job_[0-9a-f]{32}$")]


def page(kind: type[V], items: Sequence[V], *, limit: int, cursor: Callable[[V], str]) -> Page[V]:
    """The first `limit` of `items`; the caller asked for one more than that, to see whether there are more."""
    more = len(items) > limit
    shown = list(items[:limit])
    return Page[kind](data=shown, has_more=more, next=cursor(shown[-1]) if more else None)


def number_after(cursor: str | None) -> int:
    """The place in a numbered list: 0 is its beginning. Raises InvalidCursor."""
    if cursor is None:
        return 0
    if re.fullmatch(NUMBER, cursor) is None:
        raise InvalidCursor(f"{cursor!r} is no number that this list gave as `next`")
    return int(cursor)


def id_after(cursor: str | None, prefix: Prefix) -> str | None:
    """The object that the page before ended with. Raises InvalidCursor."""
    if cursor is not None and not is_id(cursor, prefix):
        raise InvalidCursor(f"{cursor!r} is no id that this list gave as `next`")
    return cursor


def place_after(cursor: str | None) -> QueueCursor | None:
    """The place in the queue that the page before ended with. Raises InvalidCursor."""
    if cursor is None:
        return None
    match = _PLACE.fullmatch(cursor)
    if match is None or not is_id(match[2], "job"):
        raise InvalidCursor(f"{cursor!r} is no place that this list gave as `next`")
    return QueueCursor(priority=int(match[1]), job_id=match[2])


def place_cursor(place: QueueCursor) -> str:
    return f"{place.priority}:{place.job_id}"
