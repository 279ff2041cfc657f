"""Times, which the store has as microseconds since the epoch."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time(microseconds: int) -> datetime:
    """Returns a time of the store."""
    return _EPOCH + timedelta(microseconds=microseconds)


def time_or_none(microseconds: int | None) -> datetime | None:
    """Returns a time of the store, if there is one."""
    return None if microseconds is None else time(microseconds)


def microseconds(time: datetime) -> int:
    """Returns `time` as the store has it."""
    return (time - _EPOCH) // timedelta(microseconds=1)
