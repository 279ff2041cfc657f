"""What one attempt may store. The rest is dropped, one message says so, and the job goes on.

States, progress, and messages of the service are never dropped. Of the items that a job shows, the first
that fit are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import json
from typing import NamedTuple, TypeAlias

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from store.output.facts import MetricPoint, NewLines, NewMedia, OutputLimits
from store.output.metrics import POINT
from store.tables import Artifact, Attempt, Job, Media
from store.team import quotas

_MESSAGE_ROW_BYTES = 100
"""What a stored message takes besides its text."""
_ITEM_ROW_BYTES = 200
"""What an item that is shown takes besides its texts, data and pictures."""
_PER_STATEMENT = 1000
"""Items that one statement names: a database limits its values."""
_QUOTA_BYTES = 1 << 20
"""Points of an attempt after which its owner's quota is looked at again: it takes some queries."""

Position: TypeAlias = tuple[str, int, int]
"""Key, step and number of an item that is shown."""


class Counted(NamedTuple):
    """Columns of the attempt's row: what of its output is stored."""

    log_bytes: int
    message_bytes: int
    point_bytes: int
    cut: str


class OutputMeter:
    """Counts what an attempt stores, and drops what is beyond its limits.

    `counted`: what the attempt's row has. `rest`: where its files are.
    """

    def __init__(self, limits: OutputLimits, counted: Counted, *, rest: str) -> None:
        self.cut = counted.cut.split()
        """The outputs of which a part is not stored."""
        self.notices: list[str] = []
        """The messages to store: one for each output that is cut from now on."""
        self._limits = limits
        self._log_bytes = counted.log_bytes
        self._message_bytes = counted.message_bytes
        self._point_bytes = counted.point_bytes
        self._other_point_bytes = 0
        self._is_over_quota = False
        self._rest = rest

    @property
    def counted(self) -> Counted:
        """What the attempt's row is to have."""
        return Counted(self._log_bytes, self._message_bytes, self._point_bytes, " ".join(self.cut))

    def mark_cut(self, output: str, notice: str) -> None:
        """Notes that a part of `output` is not stored. Only the first notice about an output counts."""
        if output not in self.cut:
            self.cut.append(output)
            self.notices.append(notice)

    def take_lines(self, new: Sequence[NewLines]) -> list[NewLines]:
        """Returns the lines to store: the first ones, as many as fit."""
        return [replace(chunk, lines=self._fitting(chunk.lines)) for chunk in new]

    def takes_message(self, text: str) -> bool:
        """Returns whether a message of the job is to be stored."""
        size, limit = len(text.encode()) + _MESSAGE_ROW_BYTES, self._limits.message_bytes
        if "messages" not in self.cut and (limit is None or self._message_bytes + size <= limit):
            self._message_bytes += size
            return True
        self.mark_cut("messages", self._notice("messages", limit, "TORCHYARD_MAX_MESSAGE_BYTES"))
        return False

    def asks_for_quota(self, points: int) -> bool:
        """Returns whether it is time to look at the owner's quota, before so many points are taken."""
        before, after = self._point_bytes, self._point_bytes + points * POINT.size
        return "points" not in self.cut and (not before or before // _QUOTA_BYTES != after // _QUOTA_BYTES)

    def note_others(self, point_bytes: int, *, over_quota: bool) -> None:
        """Notes what limits the points besides those of this attempt.

        `point_bytes`: of other attempts of the job. `over_quota`: whether its owner has stored too much.
        """
        self._other_point_bytes, self._is_over_quota = point_bytes, over_quota

    def take_points(self, new: Sequence[MetricPoint]) -> Sequence[MetricPoint]:
        """Returns the points to store: the first ones, as many as fit. All of them, once some did not."""
        if "points" in self.cut or not new:
            return new
        limit = self._limits.point_bytes
        left = None if limit is None else limit - self._other_point_bytes - self._point_bytes
        room = 0 if self._is_over_quota else len(new) if left is None else max(0, left) // POINT.size
        if len(new) > room:
            self.mark_cut("points", f"{self._points_notice()}. The newest value of each metric is stored once a minute")
        return new[:room]

    def count_points(self, count: int) -> None:
        """Counts points that were stored."""
        self._point_bytes += count * POINT.size

    def _fitting(self, lines: Sequence[str]) -> list[str]:
        if "log" in self.cut:
            return []
        limit = self._limits.log_bytes
        for index, line in enumerate(lines):
            size = len(line.encode()) + 1
            if limit is not None and self._log_bytes + size > limit:
                self.mark_cut("log", self._notice("log", limit, "TORCHYARD_MAX_LOG_BYTES"))
                return list(lines[:index])
            self._log_bytes += size
        return list(lines)

    def _points_notice(self) -> str:
        if self._is_over_quota:
            return (
                "few of this attempt's metric points are stored: its owner's quota `stored_bytes` is used up; the rest"
                f" is in the files of {self._rest}"
            )
        return self._notice("metric points", self._limits.point_bytes or 0, "TORCHYARD_MAX_POINT_BYTES", of="job")

    def _notice(self, output: str, limit: int | None, setting: str, *, of: str = "attempt") -> str:
        return (
            f"no more of this {of}'s {output} is stored: the limit of {limit} bytes is reached ({setting} of the"
            f" worker); the rest is in the files of {self._rest}"
        )


def note_others(session: Session, job_id: str, number: int, meter: OutputMeter, *, points: int) -> None:
    """Notes in the meter of an attempt, before it takes so many points, what the job and its owner have stored.

    A job that is paused and resumed again and again has one limit, and one whose owner is over the quota stores few.
    """
    others = select(func.coalesce(func.sum(Attempt.point_bytes), 0))
    others = others.where(Attempt.job_id == job_id, Attempt.number != number)
    over_quota = False
    if meter.asks_for_quota(points):
        owner = session.execute(select(Job.owner).where(Job.id == job_id)).scalar_one()
        over_quota = quotas.bytes_left(session, owner) == 0
    meter.note_others(int(session.execute(others).scalar_one()), over_quota=over_quota)


@dataclass(frozen=True)
class Fitting:
    """What of some new items is to be stored."""

    items: Sequence[NewMedia]
    """The last of each position."""
    replaced: Sequence[str]
    """Ids of the stored items whose positions they take."""
    refused: Sequence[NewMedia]
    """The items that are not stored: those that do not fit, and those whose position another takes."""
    why: str | None
    """Why the first that does not fit does not; None if all do."""


def fit_media(session: Session, job_id: str, new: Sequence[NewMedia], limits: OutputLimits) -> Fitting:
    """Returns the first of the new items, as many as fit beside what is stored of the job."""
    room = _media_room(session, job_id, limits)
    stored = _items_at(session, job_id, [position_of(item) for item in new])
    taken: dict[Position, NewMedia] = {}
    refused: list[NewMedia] = []
    why = None
    for index, item in enumerate(new):
        position = position_of(item)
        before = size_of(taken[position]) if position in taken else stored[position][1] if position in stored else None
        if (why := room.refusal(size_of(item), before)) is not None:
            refused += new[index:]
            break
        room.take(size_of(item), before)
        refused += [taken.pop(position)] if position in taken else []
        taken[position] = item
    return Fitting([*taken.values()], [stored[position][0] for position in taken if position in stored], refused, why)


def size_of(item: NewMedia) -> int:
    """Returns the bytes that an item takes."""
    texts = json.dumps([item.key, item.caption, item.classes, item.data], ensure_ascii=False)
    return _ITEM_ROW_BYTES + len(texts.encode()) + sum(picture.size for picture in item.pictures)


def position_of(item: NewMedia) -> Position:
    """Returns where the item is: a job has one for each key, step and number."""
    return item.key, item.step, item.number


def media_bytes(session: Session, job_id: str) -> int:
    """Returns the bytes of what the job shows."""
    return int(
        session.execute(select(func.coalesce(func.sum(Media.size), 0)).where(Media.job_id == job_id)).scalar_one()
    )


@dataclass
class _MediaRoom:
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


def _media_room(session: Session, job_id: str, limits: OutputLimits) -> _MediaRoom:
    shown = select(func.count(), func.coalesce(func.sum(Media.size), 0)).where(Media.job_id == job_id)
    count, size = session.execute(shown).one()
    files = select(func.coalesce(func.sum(Artifact.size), 0)).where(Artifact.job_id == job_id)
    used = int(size) + int(session.execute(files).scalar_one())
    owner = session.execute(select(Job.owner).where(Job.id == job_id)).scalar_one()
    return _MediaRoom(
        items=None if limits.media is None else limits.media - count,
        bytes=None if limits.artifact_bytes is None else limits.artifact_bytes - used,
        quota=quotas.bytes_left(session, owner),
        limits=limits,
    )


def _items_at(session: Session, job_id: str, positions: Sequence[Position]) -> dict[Position, tuple[str, int]]:
    """Returns the ids and bytes of the items at these positions."""
    items: dict[Position, tuple[str, int]] = {}
    position = tuple_(Media.key, Media.step, Media.number)
    for first in range(0, len(positions), _PER_STATEMENT):
        some = position.in_(positions[first : first + _PER_STATEMENT])
        query = select(Media.key, Media.step, Media.number, Media.id, Media.size).where(Media.job_id == job_id, some)
        items |= {(key, step, number): (media_id, size) for key, step, number, media_id, size in session.execute(query)}
    return items
