"""How many items of what its runs show a job may store, and how many bytes they may take."""

from collections.abc import Sequence
from dataclasses import dataclass
import json
from typing import TypeAlias

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from store.output.facts import NewMedia, OutputLimits
from store.tables import Artifact, Job, Media
from store.team import quotas

Place: TypeAlias = tuple[str, int, int]

_ROW_BYTES = 200
"""What an item takes besides its texts, data and pictures."""
_PER_STATEMENT = 1000
"""Places that one statement names: a database limits its values."""


@dataclass(frozen=True)
class Fitting:
    """What of some new items is to be stored."""

    items: Sequence[NewMedia]
    """The last of each place."""
    replaced: Sequence[str]
    """Ids of the stored items whose places they take."""
    refused: Sequence[NewMedia]
    """The items that are not stored: those that do not fit, and those whose place another takes."""
    why: str | None
    """Why the first that does not fit does not; None if all do."""


def fitting(session: Session, job_id: str, new: Sequence[NewMedia], limits: OutputLimits) -> Fitting:
    """Returns the first of the new items, as many as fit beside what is stored of the job."""
    room = _room(session, job_id, limits)
    stored = _at(session, job_id, [place_of(item) for item in new])
    taken: dict[Place, NewMedia] = {}
    refused: list[NewMedia] = []
    why = None
    for at, item in enumerate(new):
        place = place_of(item)
        before = size_of(taken[place]) if place in taken else stored[place][1] if place in stored else None
        if (why := room.refusal(size_of(item), before)) is not None:
            refused += new[at:]
            break
        room.take(size_of(item), before)
        refused += [taken.pop(place)] if place in taken else []
        taken[place] = item
    return Fitting([*taken.values()], [stored[place][0] for place in taken if place in stored], refused, why)


def size_of(item: NewMedia) -> int:
    """Returns the bytes that an item takes."""
    texts = json.dumps([item.key, item.caption, item.classes, item.data], ensure_ascii=False)
    return _ROW_BYTES + len(texts.encode()) + sum(picture.size for picture in item.pictures)


def place_of(item: NewMedia) -> Place:
    """Returns where the item is, of which there is one for each place."""
    return item.key, item.step, item.number


def media_bytes(session: Session, job_id: str) -> int:
    """Returns the bytes of what the job shows."""
    return int(
        session.execute(select(func.coalesce(func.sum(Media.size), 0)).where(Media.job_id == job_id)).scalar_one()
    )


@dataclass
class _Room:
    items: int | None
    bytes: int | None
    quota: int | None
    limits: OutputLimits

    def refusal(self, size: int, before: int | None) -> str | None:
        """Returns why an item does not fit. `before`: bytes of the one that it replaces, if there is one."""
        more = size - (before or 0)
        if before is None and self.items is not None and self.items < 1:
            return f"the limit of {self.limits.media} items is reached (TORCHYARD_MAX_MEDIA of the worker)"
        if self.bytes is not None and more > self.bytes:
            most = self.limits.artifact_bytes
            return f"with its files they would take more than {most} bytes (TORCHYARD_MAX_ARTIFACT_BYTES of the worker)"
        if self.quota is not None and more > self.quota:
            return "its owner's quota `stored_bytes` is used up"
        return None

    def take(self, size: int, before: int | None) -> None:
        more = size - (before or 0)
        self.items = None if self.items is None else self.items - (before is None)
        self.bytes = None if self.bytes is None else self.bytes - more
        self.quota = None if self.quota is None else self.quota - more


def _room(session: Session, job_id: str, limits: OutputLimits) -> _Room:
    shown = select(func.count(), func.coalesce(func.sum(Media.size), 0)).where(Media.job_id == job_id)
    count, size = session.execute(shown).one()
    files = select(func.coalesce(func.sum(Artifact.size), 0)).where(Artifact.job_id == job_id)
    used = int(size) + int(session.execute(files).scalar_one())
    owner = session.execute(select(Job.owner).where(Job.id == job_id)).scalar_one()
    return _Room(
        items=None if limits.media is None else limits.media - count,
        bytes=None if limits.artifact_bytes is None else limits.artifact_bytes - used,
        quota=quotas.bytes_left(session, owner),
        limits=limits,
    )


def _at(session: Session, job_id: str, places: Sequence[Place]) -> dict[Place, tuple[str, int]]:
    """Returns the ids and bytes of the items at these places."""
    found: dict[Place, tuple[str, int]] = {}
    place = tuple_(Media.key, Media.step, Media.number)
    for first in range(0, len(places), _PER_STATEMENT):
        some = place.in_(places[first : first + _PER_STATEMENT])
        query = select(Media.key, Media.step, Media.number, Media.id, Media.size).where(Media.job_id == job_id, some)
        found |= {(key, step, number): (media_id, size) for key, step, number, media_id, size in session.execute(query)}
    return found
