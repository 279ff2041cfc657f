"""Turns what a replay says into estimates. Times are microseconds since the epoch, by the database's clock."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from scheduling.calibration import Track, interval
from store.queue.estimates_facts import Estimated, Seen

_OF_TEN = 9


@dataclass(frozen=True)
class Estimates:
    """All estimates of one moment."""

    made_at: int
    estimated: tuple[Estimated, ...]
    after: int | None
    """When jobs that stand behind those that were looked at start at the earliest. None: there are none."""


def estimates_of(
    seen: Seen, starts: Mapping[str, int], tracks: Mapping[int, Track]
) -> Generator[float, None, Estimates]:
    """Returns the estimates of what was `seen`. Yields 0 after each job.

    `starts`: when each job starts, as the replay says. Jobs without a start have no estimate.
    """
    now, made = seen.snapshot.now, list[Estimated]()
    for job in seen.snapshot.line:
        if job.id in starts and job.id in seen.attempts:
            made.append(_estimated(job.id, seen.attempts[job.id], now, max(0, starts[job.id] - now), tracks))
            yield 0.0
    return Estimates(now, tuple(made), _after(made) if seen.after else None)


def _estimated(job_id: str, attempt: int, now: int, wait_us: int, tracks: Mapping[int, Track]) -> Estimated:
    estimate = interval(tracks, wait_us).since(now)
    return Estimated(job_id, attempt, wait_us, estimate.bucket, estimate.expected, estimate.low, estimate.high)


def _after(made: list[Estimated]) -> int | None:
    """Returns when nine of ten have started: the others may wait for what nobody behind them needs."""
    moments = sorted(one.expected if one.low is None else one.low for one in made)
    return moments[(len(moments) - 1) * _OF_TEN // 10] if moments else None
