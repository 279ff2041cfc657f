"""Splits lists into pages, and parses the cursors between them."""

from collections.abc import Callable
import hashlib
import re
import struct
from typing import Annotated, Any, TypeVar, cast

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from fastapi import Query

from store.ids import Prefix, is_id
from store.jobs.facts import ListCursor, ListedJob, Order, QueueCursor, TableCursor, has_number, sort_key
from store.output.facts import MediaPosition
from store.pages import FactPage
from torchyard.contract.errors import InvalidCursor
from torchyard.contract.jobs.columns import parse_column
from torchyard.contract.jobs.filters import JobSort
from torchyard.contract.media.kinds import LARGEST_NUMBER
from torchyard.contract.models.names import MODEL_NAME
from torchyard.contract.team.requests import USER_NAME
from torchyard.contract.wire.text import METRIC_KEY, METRIC_KEY_LENGTH, storable
from torchyard.contract.wire.view import Page, View

T = TypeVar("T")
V = TypeVar("V", bound=View)

Limit = Annotated[int, Query(ge=1, le=1000, description="maximum number of items in a page")]
NUMBER = "^[0-9]{1,18}$"
"""The pattern of a cursor in a numbered list."""
POSITIONS = "^job_[0-9a-f]{32}:[0-9]{1,18}(,job_[0-9a-f]{32}:[0-9]{1,18})*$"
"""The pattern of a cursor in a stream of several jobs."""
BUNDLE = "^[0-9]{1,18}:[0-9a-f]{64}$"
"""The pattern of a cursor in a list of bundles."""
MEDIA = f"^[0-9]{{1,19}}:[0-9]{{1,{len(str(LARGEST_NUMBER))}}}:{METRIC_KEY.removeprefix('^')}"
"""The pattern of a cursor in a list of media: step, number and key."""
USAGE = "^[0-9a-f]{1,2400}$"
"""The pattern of a cursor in usage: a user and a label, which may be any text, in UTF-8."""

_MODEL = f"{USER_NAME.removesuffix('$')}/{MODEL_NAME.removeprefix('^')}"
_SORTED = re.compile(r"((?P<sort>[a-z-]{1,20}):(?P<key>[A-Za-z0-9._@-]{0,100}):)?(?P<id>job_[0-9a-f]{32})")
_ARRANGED = "column"
"""Stands in a cursor for the order by a column."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_PLACE = re.compile(r"[0-9a-f]{64}")
_STANDING = struct.Struct(">qhb5x")
"""Key, priority and whether over quota, of a position in the queue: one block of the cipher."""


def _cursor(pattern: str, *, most: int = 200) -> Any:
    # The pattern is for the document only: a cursor that does not match raises InvalidCursor.
    description = "the `next` of the previous page"
    return Query(max_length=most, description=description, json_schema_extra={"pattern": pattern})


AfterNumber = Annotated[str | None, _cursor(NUMBER)]
AfterJob = Annotated[str | None, _cursor("^([a-z-]{1,20}:[A-Za-z0-9._@-]{0,100}:)?job_[0-9a-f]{32}$")]
AfterCheckpoint = Annotated[str | None, _cursor("^ckpt_[0-9a-f]{32}$")]
AfterArtifact = Annotated[str | None, _cursor("^art_[0-9a-f]{32}$")]
AfterWorker = Annotated[str | None, _cursor("^wrk_[0-9a-f]{32}$")]
AfterSchedule = Annotated[str | None, _cursor("^sch_[0-9a-f]{32}$")]
AfterSweep = Annotated[str | None, _cursor("^swp_[0-9a-f]{32}$")]
AfterToken = Annotated[str | None, _cursor("^tok_[0-9a-f]{32}$")]
AfterMessage = Annotated[str | None, _cursor("^msg_[0-9a-f]{32}$")]
AfterBundle = Annotated[str | None, _cursor(BUNDLE)]
AfterName = Annotated[str | None, _cursor(USER_NAME)]
AfterModel = Annotated[str | None, _cursor(_MODEL)]
AfterMedia = Annotated[str | None, _cursor(MEDIA, most=30 + METRIC_KEY_LENGTH)]
AfterUsage = Annotated[str | None, _cursor(USAGE, most=2400)]
AfterQueueEntry = Annotated[str | None, _cursor("^[0-9a-f]{64}$")]


def page(kind: type[V], facts_page: FactPage[T], present: Callable[[T], V], *, cursor: Callable[[V], str]) -> Page[V]:
    """Returns the page of views of the facts. `cursor` tells of a view where the next page begins."""
    shown = [present(facts) for facts in facts_page.items]
    return Page[kind](data=shown, has_more=facts_page.has_more, next=cursor(shown[-1]) if facts_page.has_more else None)


def page_of_views(kind: type[V], listed: FactPage[V], *, cursor: Callable[[V], str]) -> Page[V]:
    """Returns the page of views that the store has made. `cursor` tells of a view where the next page begins."""
    return page(kind, listed, lambda view: view, cursor=cursor)


def number_after(cursor: str | None) -> int:
    """Returns the number that the cursor stands for, 0 for the start of the list. Raises InvalidCursor."""
    if cursor is None:
        return 0
    if re.fullmatch(NUMBER, cursor) is None:
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list")
    return int(cursor)


def positions_after(cursor: str | None) -> dict[str, int]:
    """Returns the position of each job of a stream's cursor. Raises InvalidCursor."""
    if cursor is None:
        return {}
    if re.fullmatch(POSITIONS, cursor) is None:
        raise InvalidCursor(f"{cursor[:100]!r} is not the `id` of an event of this stream")
    pairs = (pair.split(":") for pair in cursor.split(","))
    return {job_id: int(position) for job_id, position in pairs}


def id_after(cursor: str | None, prefix: Prefix) -> str | None:
    """Returns the id of the last object of the previous page. Raises InvalidCursor."""
    if cursor is not None and not is_id(cursor, prefix):
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list")
    return cursor


def order_of(sort: str) -> JobSort | Order:
    """Returns the order that the parameter `sort` names, one of lists or one by a column."""
    if "." in sort or ":" in sort:
        return Order(parse_column(sort.removeprefix("-")), reverse=sort.startswith("-"))
    return cast("JobSort", sort)


def job_cursor(job: ListedJob, sort: JobSort) -> str:
    """Returns the cursor behind a job in a list of this order."""
    if sort == "created":
        return job.id
    key = sort_key(job, sort)
    return f"{sort}:{'' if key is None else key}:{job.id}"


def job_after(cursor: str | None, sort: JobSort) -> ListCursor | None:
    """Returns the position that the cursor stands for, None for the start of the list. Raises InvalidCursor."""
    if cursor is None:
        return None
    match, number = _SORTED.fullmatch(cursor), has_number(sort)
    if match is None or (match["sort"] or "created") != sort or (number and _INTEGER.fullmatch(match["key"]) is None):
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list in this order")
    return ListCursor(int(match["key"]) if number else match["key"], match["id"])


def table_cursor(after: TableCursor) -> str:
    """Returns the cursor after a row of a list that is arranged anew for each page."""
    return f"{_ARRANGED}:{after.index}:{after.job_id}"


def table_after(cursor: str | None) -> TableCursor | None:
    """Returns the row that the cursor stands for, None for the start of the list. Raises InvalidCursor."""
    if cursor is None:
        return None
    match = _SORTED.fullmatch(cursor)
    if match is None or match["sort"] != _ARRANGED or re.fullmatch("[0-9]{1,6}", match["key"]) is None:
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list in this order")
    return TableCursor(int(match["key"]), match["id"])


def model_after(cursor: str | None) -> tuple[str, str] | None:
    """Returns the owner and the name of the last model of the previous page. Raises InvalidCursor."""
    if cursor is None:
        return None
    if re.fullmatch(_MODEL, cursor) is None:
        raise InvalidCursor(f"{cursor!r} is not a `next` value of this list")
    owner, _, name = cursor.partition("/")
    return owner, name


def media_after(cursor: str | None) -> MediaPosition | None:
    """Returns the position of the last item of the previous page. Raises InvalidCursor."""
    if cursor is None:
        return None
    step, _, rest = cursor.partition(":")
    if re.fullmatch(MEDIA, cursor) is None or int(step) >= 2**63:
        raise InvalidCursor(f"{cursor[:100]!r} is not a `next` value of this list")
    number, _, key = rest.partition(":")
    return MediaPosition(storable(key), int(step), int(number))


def usage_cursor(owner: str, label: str) -> str:
    """Returns the cursor behind a row of usage."""
    return f"{owner}\0{label}".encode().hex()


def usage_after(cursor: str | None) -> tuple[str, str] | None:
    """Returns the owner and the label of the last row of the previous page. Raises InvalidCursor."""
    if cursor is None:
        return None
    if re.fullmatch(USAGE, cursor) is None:
        raise InvalidCursor(f"{cursor[:100]!r} is not a `next` value of this list")
    owner, _, label = bytes.fromhex(cursor[: len(cursor) // 2 * 2]).decode(errors="replace").partition("\0")
    return owner, storable(label)


class QueueCursors:
    """Encrypts cursors in the queue, which contain the id of a job: it may be another user's private one."""

    def __init__(self, secret: str) -> None:
        """All API processes of a service need the same `secret`."""
        key = hashlib.sha256(f"queue cursor {secret}".encode()).digest()
        # A UUID is one block, and the rest another, so each has one cursor, which shows nothing of it without the key.
        self._cipher = Cipher(AES(key), ECB())  # noqa: S305

    def of(self, position: QueueCursor) -> str:
        """Returns the cursor after a position."""
        standing = _STANDING.pack(position.key, position.priority, position.over_quota)
        return self._cipher.encryptor().update(bytes.fromhex(position.job_id.removeprefix("job_")) + standing).hex()

    def read(self, cursor: str | None) -> QueueCursor | None:
        """Returns the position that the cursor stands for, None for the start of the queue. Raises InvalidCursor."""
        if cursor is None:
            return None
        decrypted = self._cipher.decryptor().update(bytes.fromhex(cursor)) if _PLACE.fullmatch(cursor) else b""
        if not decrypted or any(decrypted[-5:]):
            raise InvalidCursor(f"{cursor[:100]!r} is not a `next` value of this list")
        key, priority, over_quota = _STANDING.unpack(decrypted[16:])
        return QueueCursor(priority, key, f"job_{decrypted[:16].hex()}", bool(over_quota))
