"""When the time limit stops an attempt. The stop belongs to it: at the limit, the attempt is killed."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class TimeLimit:
    """The limit of an attempt that began at `began`. Moments are seconds of the caller's clock."""

    began: float
    limit: timedelta
    stop_grace: timedelta

    @property
    def grace(self) -> timedelta:
        """The end of the limit that is left for the stop, in whole seconds: at most half of it."""
        return timedelta(seconds=min(self.stop_grace, self.limit / 2) // timedelta(seconds=1))

    @property
    def stop_at(self) -> float:
        """When the attempt is asked to stop."""
        return self._kill_at - self.grace.total_seconds()

    def deadline(self, now: float, grace: timedelta) -> float:
        """Returns when an attempt is killed that is asked now to stop within `grace`, for whatever reason."""
        return min(now + grace.total_seconds(), self._kill_at)

    @property
    def _kill_at(self) -> float:
        return self.began + self.limit.total_seconds()
