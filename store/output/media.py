"""What runs show: rows, some of them over blobs. A row means that every byte is in the blob store."""

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import groupby
import json
from typing import Any

from sqlalchemy import Delete, delete, func, insert, select, tuple_
from sqlalchemy.orm import Session

from store import pages
from store.blobs import garbage
from store.db import columns
from store.ids import new_id
from store.output import media_limits
from store.output.facts import MediaFacts, MediaFilter, MediaKeyFacts, MediaPlace, NewMedia, OutputLimits, PictureFacts
from store.pages import FactPage
from store.tables import Media, MediaPicture
from torchyard.contract.errors import NotFound

_TOLD = columns.of(MediaFacts, Media)
_PICTURE = columns.of(PictureFacts, MediaPicture)
_PLACE = tuple_(Media.key, Media.step, Media.number)
_PAGE_BYTES = 2 << 20
"""Of small cells: encoding a page costs ten times what its bytes say."""


@dataclass(frozen=True)
class Added:
    """What came of new items."""

    told: Sequence[dict[str, Any]]
    """The data of the events of those that are stored: one of each key and kind, with the highest step."""
    why: str | None
    """Why some are not stored; None if all are."""


def add(session: Session, job_id: str, *, attempt: int, new: Sequence[NewMedia], limits: OutputLimits) -> Added:
    """Inserts items of the attempt, as many as fit. They replace those at the same keys, steps and numbers.

    The blobs of what is replaced, or not stored, become garbage.
    """
    found = media_limits.fitting(session, job_id, new, limits)
    gone = [picture.sha256 for item in found.refused for picture in item.pictures]
    if found.replaced:
        pictures = MediaPicture.media_id.in_(found.replaced)
        gone += session.scalars(select(MediaPicture.sha256).where(pictures))
        _execute(session, delete(MediaPicture).where(pictures))
        _execute(session, delete(Media).where(Media.id.in_(found.replaced)))
    garbage.add_blobs(session, gone)
    ids = [new_id("med") for _ in found.items]
    rows = [
        {"id": media_id, "job_id": job_id, "key": item.key, "kind": item.kind, "step": item.step}
        | {"number": item.number, "attempt": attempt, "size": media_limits.size_of(item)}
        | {"caption": item.caption, "classes": item.classes and [*item.classes], "data": item.data and {**item.data}}
        for media_id, item in zip(ids, found.items, strict=True)
    ]
    pictures = [
        {"media_id": media_id, "job_id": job_id} | asdict(picture)
        for media_id, item in zip(ids, found.items, strict=True)
        for picture in item.pictures
    ]
    for table, values in ((Media, rows), (MediaPicture, pictures)):
        if values:
            session.execute(insert(table), values)
    return Added(_told(found.items), found.why)


def page(
    session: Session, job_id: str, *, where: MediaFilter, limit: int, after: MediaPlace | None = None
) -> FactPage[MediaFacts]:
    """Returns items of the job behind a place, by key, step and number: up to `limit` of them, and up to 2 MiB."""
    query = select(*_TOLD).where(Media.job_id == job_id).order_by(Media.key, Media.step, Media.number)
    if where.keys:
        query = query.where(Media.key.in_(where.keys))
    if where.kinds:
        query = query.where(Media.kind.in_(where.kinds))
    if where.from_step is not None:
        query = query.where(Media.step >= where.from_step)
    if where.to_step is not None:
        query = query.where(Media.step <= where.to_step)
    if after is not None:
        query = query.where((after.key, after.step, after.number) < _PLACE)
    with closing(session.execute(query.limit(limit + 1).execution_options(yield_per=64))) as rows:
        found = pages.take((MediaFacts(*row) for row in rows), limit=limit, size=_size, most=_PAGE_BYTES)
    pictures = _pictures_of(session, [item.id for item in found.items])
    return replace(found, items=[replace(item, pictures=pictures.get(item.id, ())) for item in found.items])


def keys(session: Session, job_id: str) -> list[MediaKeyFacts]:
    """Returns what the job has of each key and kind."""
    place = (Media.key, Media.kind, Media.step)
    query = select(*place, func.count(), func.max(Media.number) + 1).where(Media.job_id == job_id)
    found = session.execute(query.group_by(*place).order_by(*place)).all()
    return [_key_of(*of, list(rows)) for of, rows in groupby(found, key=lambda row: (row[0], row[1]))]


def picture(session: Session, job_id: str, media_id: str, part: str) -> tuple[str, PictureFacts]:
    """Returns a picture of an item of the job, and the key of the item. Raises NotFound."""
    query = select(Media.key, *_PICTURE).join(MediaPicture, MediaPicture.media_id == Media.id)
    query = query.where(Media.id == media_id, Media.job_id == job_id, MediaPicture.part == part)
    found = session.execute(query).first()
    if found is None:
        raise NotFound(f"job {job_id} has no picture {media_id[:60]!r}, part {part[:60]!r}")
    key, *values = found
    return key, PictureFacts(*values)


def remove(session: Session, job_id: str) -> set[str]:
    """Deletes all items of the job. Returns their blobs, which are garbage."""
    blobs = set(session.scalars(select(MediaPicture.sha256).where(MediaPicture.job_id == job_id)))
    _execute(session, delete(MediaPicture).where(MediaPicture.job_id == job_id))
    _execute(session, delete(Media).where(Media.job_id == job_id))
    return blobs


def _told(items: Sequence[NewMedia]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        told = found.setdefault((item.key, item.kind), {"key": item.key, "kind": item.kind, "step": 0, "count": 0})
        told["step"], told["count"] = max(told["step"], item.step), told["count"] + 1
    return [*found.values()]


def _execute(session: Session, statement: Delete) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _pictures_of(session: Session, ids: Collection[str]) -> dict[str, list[PictureFacts]]:
    query = select(MediaPicture.media_id, *_PICTURE).where(MediaPicture.media_id.in_(ids))
    found: dict[str, list[PictureFacts]] = {}
    for media_id, *values in session.execute(query.order_by(MediaPicture.media_id, MediaPicture.part)):
        found.setdefault(media_id, []).append(PictureFacts(*values))
    return found


def _key_of(key: str, kind: str, rows: Sequence[tuple[str, str, int, int, int]]) -> MediaKeyFacts:
    _, _, steps, counts, numbers = zip(*rows, strict=True)
    return MediaKeyFacts(key, kind, sum(counts), steps, max(numbers))


def _size(item: MediaFacts) -> int:
    return 200 + len(json.dumps([item.caption, item.classes, item.data]))
