"""What runs show: rows, some of them over blobs. A row means that every byte is in the blob store."""

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
import json
from typing import Any

from sqlalchemy import Delete, RowMapping, delete, func, insert, select, tuple_, type_coerce
from sqlalchemy.orm import Session

from store import pages
from store.blobs import garbage
from store.db.columns import Instant
from store.ids import new_id
from store.output.facts import MediaFilter, MediaPosition, NewMedia, OutputLimits
from store.output.limits import fit_media, size_of
from store.pages import FactPage
from store.tables import Media, MediaPicture
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.media.views import MediaKeyView, MediaView, PictureView

_VALUES = [getattr(Media, name) for name in MediaView.model_fields if name not in {"parts", "created_at"}]
_COLUMNS = [*_VALUES, type_coerce(Media.created_at, Instant).label("created_at")]
_PICTURE = [getattr(MediaPicture, name) for name in ("part", *PictureView.model_fields)]
_POSITION = tuple_(Media.key, Media.step, Media.number)
_PAGE_BYTES = 2 << 20
"""Of small cells: encoding a page costs ten times what its bytes say."""
MOST_STEPS = 1000
"""Steps that are answered of a key."""


@dataclass(frozen=True)
class Added:
    """What came of new items."""

    events: Sequence[dict[str, Any]]
    """The data of the events of those that are stored: one of each key and kind, with the highest step."""
    why: str | None
    """Why some are not stored; None if all are."""


def add(session: Session, job_id: str, *, attempt: int, new: Sequence[NewMedia], limits: OutputLimits) -> Added:
    """Inserts items of the attempt, as many as fit. They replace those at the same keys, steps and numbers.

    The blobs of what is replaced, or not stored, become garbage.
    """
    fitting = fit_media(session, job_id, new, limits)
    gone = [picture.sha256 for item in fitting.refused for picture in item.pictures]
    if fitting.replaced:
        pictures = MediaPicture.media_id.in_(fitting.replaced)
        gone += session.scalars(select(MediaPicture.sha256).where(pictures))
        _execute(session, delete(MediaPicture).where(pictures))
        _execute(session, delete(Media).where(Media.id.in_(fitting.replaced)))
    garbage.add_blobs(session, gone)
    ids = [new_id("med") for _ in fitting.items]
    rows = [
        {"id": media_id, "job_id": job_id, "key": item.key, "kind": item.kind, "step": item.step}
        | {"number": item.number, "attempt": attempt, "size": size_of(item)}
        | {"caption": item.caption, "classes": item.classes and [*item.classes], "data": item.data and {**item.data}}
        for media_id, item in zip(ids, fitting.items, strict=True)
    ]
    pictures = [
        {"media_id": media_id, "job_id": job_id} | asdict(picture)
        for media_id, item in zip(ids, fitting.items, strict=True)
        for picture in item.pictures
    ]
    for table, values in ((Media, rows), (MediaPicture, pictures)):
        if values:
            session.execute(insert(table), values)
    return Added(_events_of(fitting.items), fitting.why)


def list_media(
    session: Session,
    job_id: str,
    *,
    caller: Caller,
    where: MediaFilter,
    limit: int,
    after: MediaPosition | None = None,
    with_keys: bool = True,
) -> tuple[FactPage[MediaView], list[MediaKeyView]]:
    """Returns items of a job that the caller may read, by key, step and number: up to `limit` of them, and up to 2 MiB.

    Returns `with_keys` also what the job has of each key and kind. Raises NotFound.
    """
    access.readable_job(session, job_id, caller)
    query = select(*_COLUMNS).where(Media.job_id == job_id).order_by(Media.key, Media.step, Media.number)
    if where.keys:
        query = query.where(Media.key.in_(where.keys))
    if where.kinds:
        query = query.where(Media.kind.in_(where.kinds))
    if where.from_step is not None:
        query = query.where(Media.step >= where.from_step)
    if where.to_step is not None:
        query = query.where(Media.step <= where.to_step)
    if after is not None:
        query = query.where((after.key, after.step, after.number) < _POSITION)
    with closing(session.execute(query.limit(limit + 1).execution_options(yield_per=64))) as rows:
        page = pages.take(rows.mappings(), limit=limit, size=_size, most=_PAGE_BYTES)
    pictures = _pictures_of(session, [row["id"] for row in page.items])
    items = [MediaView.model_validate({**row, "parts": pictures.get(row["id"], {})}) for row in page.items]
    return FactPage(items, page.has_more), _list_keys(session, job_id) if with_keys else []


def find_picture(session: Session, job_id: str, media_id: str, part: str, *, caller: Caller) -> tuple[str, PictureView]:
    """Returns a picture of an item of a job that the caller may read, and the key of the item. Raises NotFound."""
    access.readable_job(session, job_id, caller)
    query = select(Media.key, *_PICTURE).join(MediaPicture, MediaPicture.media_id == Media.id)
    query = query.where(Media.id == media_id, Media.job_id == job_id, MediaPicture.part == part)
    row = session.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"job {job_id} has no picture {media_id[:60]!r}, part {part[:60]!r}")
    return row["key"], _to_picture(row)


def remove(session: Session, job_id: str) -> set[str]:
    """Deletes all items of the job. Returns their blobs, which are garbage."""
    blobs = set(session.scalars(select(MediaPicture.sha256).where(MediaPicture.job_id == job_id)))
    _execute(session, delete(MediaPicture).where(MediaPicture.job_id == job_id))
    _execute(session, delete(Media).where(Media.job_id == job_id))
    return blobs


def _events_of(items: Sequence[NewMedia]) -> list[dict[str, Any]]:
    events: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        data = events.setdefault((item.key, item.kind), {"key": item.key, "kind": item.kind, "step": 0, "count": 0})
        data["step"], data["count"] = max(data["step"], item.step), data["count"] + 1
    return [*events.values()]


def _execute(session: Session, statement: Delete) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _pictures_of(session: Session, ids: Collection[str]) -> dict[str, dict[str, PictureView]]:
    """Returns the pictures of each item, by part."""
    query = select(MediaPicture.media_id, *_PICTURE).where(MediaPicture.media_id.in_(ids))
    pictures: dict[str, dict[str, PictureView]] = {}
    for row in session.execute(query.order_by(MediaPicture.media_id, MediaPicture.part)).mappings():
        pictures.setdefault(row["media_id"], {})[row["part"]] = _to_picture(row)
    return pictures


def _to_picture(row: RowMapping) -> PictureView:
    return PictureView.model_validate({name: row[name] for name in PictureView.model_fields})


def _list_keys(session: Session, job_id: str) -> list[MediaKeyView]:
    columns_of_key = (Media.key, Media.kind, Media.step)
    query = select(*columns_of_key, func.count(), func.max(Media.number) + 1).where(Media.job_id == job_id)
    rows = session.execute(query.group_by(*columns_of_key).order_by(*columns_of_key)).all()
    return [_to_key(*of, list(of_key)) for of, of_key in groupby(rows, key=lambda row: (row[0], row[1]))]


def _to_key(key: str, kind: str, rows: Sequence[tuple[str, str, int, int, int]]) -> MediaKeyView:
    _, _, steps, counts, numbers = zip(*rows, strict=True)
    values = {"count": sum(counts), "steps": _thin_out(steps), "numbers": max(numbers)}
    return MediaKeyView.model_validate({"key": key, "kind": kind, **values})


def _thin_out(steps: Sequence[int]) -> list[int]:
    """Returns at most `MOST_STEPS` of them, evenly, with the first and the last."""
    if len(steps) <= MOST_STEPS:
        return [*steps]
    return [steps[index * (len(steps) - 1) // (MOST_STEPS - 1)] for index in range(MOST_STEPS)]


def _size(row: RowMapping) -> int:
    return 200 + len(json.dumps([row["caption"], row["classes"], row["data"]]))
