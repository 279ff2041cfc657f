"""Facts about a job that does not use its GPUs, and what follows from them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

_MICROSECOND = timedelta(microseconds=1)


class Due(NamedTuple):
    """What a job that has been idle for long gets."""

    what: Literal["warning", "stop"]
    timeout: timedelta
    """How long it may be idle."""


@dataclass(frozen=True, kw_only=True)
class IdleFacts:
    """A job whose attempt has used none of its GPUs for a while. Times are microseconds, by the database's clock."""

    job_id: str
    attempt: int
    devices: int
    now: int
    since: int
    """Since when its GPUs are idle; it had set up by then."""
    warned_at: int | None
    """When its job was last warned of that: before `since`, it was of another time."""
    idle_timeout: timedelta | None
    """That of its spec."""

    @property
    def lasted(self) -> timedelta:
        return (self.now - self.since) * _MICROSECOND

    def timeout(self, maximum: timedelta | None) -> timedelta | None:
        """Returns how long it may be idle; None: for ever. `maximum`: the operator's."""
        return min((limit for limit in (self.idle_timeout, maximum) if limit is not None), default=None)

    def left(self, timeout: timedelta) -> timedelta:
        """Returns how long it may be idle yet: from its warning on, half of the timeout at least."""
        warned_ago = timedelta(0)
        if self._is_warned and self.warned_at is not None:
            warned_ago = (self.now - self.warned_at) * _MICROSECOND
        return max(timeout - self.lasted, timeout / 2 - warned_ago)

    def due(self, maximum: timedelta | None) -> Due | None:
        """Returns what it is time for: a warning at half of the timeout, and the stop when no time is left."""
        timeout = self.timeout(maximum)
        if timeout is None:
            return None
        if not self._is_warned:
            return Due("warning", timeout) if self.lasted >= timeout / 2 else None
        return Due("stop", timeout) if self.left(timeout) <= timedelta(0) else None

    @property
    def _is_warned(self) -> bool:
        return self.warned_at is not None and self.warned_at >= self.since
