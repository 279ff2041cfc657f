"""What one attempt may store. The rest is dropped, one message says so, and the job goes on.

States, progress, and messages of the service are never dropped.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from store.output.facts import MetricPoint, NewLines, OutputLimits
from store.output.metrics import POINT

_MESSAGE_ROW_BYTES = 100
"""What a stored message takes besides its text."""


_QUOTA_BYTES = 1 << 20
"""Points of an attempt after which its owner's quota is looked at again: it takes some queries."""


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
        for place, line in enumerate(lines):
            size = len(line.encode()) + 1
            if limit is not None and self._log_bytes + size > limit:
                self.mark_cut("log", self._notice("log", limit, "TORCHYARD_MAX_LOG_BYTES"))
                return list(lines[:place])
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
