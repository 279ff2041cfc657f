"""Makes the forecast of one job, in slices: when it starts, and what would start it now."""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace

from api.limits.budget import Budget
from scheduling.alternatives import Alternative, alternatives
from scheduling.calibration import UNTAUGHT, Track, interval, too_few
from scheduling.replay import replay
from scheduling.snapshot import Waiting
from store.jobs.prospects import Ahead, Forecast, Foresight, Waits
from store.queue.estimates_facts import EstimateFacts

PROCESSOR_S = 0.2
"""What a forecast may use in all, with what it reads."""
FOR_ALTERNATIVES_S = 0.06
"""The most of it that is for the changes with which the job would start now. The replay may use the rest."""
FOR_READING_S = 0.04
"""With less left for it, what is ahead of the job is not read."""
WITHIN_S = 2.0
"""How long a forecast goes on while others take their turns."""


def budget() -> Budget:
    """Returns that of one forecast."""
    return Budget(PROCESSOR_S, within_s=WITHIN_S)


def forecast(
    foresight: Foresight, budget: Budget, *, read: Callable[[Waiting], Ahead]
) -> Generator[None, None, Forecast]:
    """Returns when the job starts, as far as the budget allows to look, and what would start it now.

    It yields after each slice, and holds nothing meanwhile. `read` returns what is ahead of the job. Raises what `read`
    does.
    """
    if foresight.waits is None:
        return Forecast()
    changes = yield from starts_if(foresight.waits, budget)
    if not foresight.waits_for_others:
        return Forecast(alternatives=changes)
    estimate, later_than = yield from _start_of(foresight.waits, budget, read)
    return Forecast(estimate, later_than, changes)


def starts_if(waits: Waits, budget: Budget) -> Generator[None, None, tuple[Alternative, ...]]:
    """Returns the changes with which the job would start now if it were submitted anew, as far as the budget goes.

    A stored job keeps its spec: what is kept for it, and its position in the line, would be lost with it.
    """
    changes: list[Alternative] = []
    job, around = replace(waits.job, submitted=waits.around.now), waits.around.without(waits.job.id)

    def tried() -> Iterator[None]:
        for one in alternatives(around, job):
            if one is not None:
                changes.append(one)
            yield

    yield from budget.slices(tried(), leaving_s=max(0.0, budget.left_s - FOR_ALTERNATIVES_S))
    return tuple(changes)


def _start_of(
    waits: Waits, budget: Budget, read: Callable[[Waiting], Ahead]
) -> Generator[None, None, tuple[EstimateFacts | None, int | None]]:
    """Returns the job's estimated start, or else the earliest moment at which it may start.

    Returns neither if it never starts, or if it waits for a running job whose length is unknown.
    """
    if budget.left_s < FOR_READING_S:
        return None, waits.around.now
    with budget.counted():
        ahead = read(waits.job)
    yield
    now, start = ahead.line.snapshot.now, None
    reached = now

    def replayed() -> Iterator[None]:
        nonlocal reached, start
        for at in replay(ahead.line.snapshot, only=(waits.job.id,)):
            reached, start = at.at, at.starts.get(waits.job.id)
            if start is not None:
                return
            yield

    has_ended = yield from budget.slices(replayed())
    if start is None:
        return None, None if has_ended else reached
    if ahead.line.is_newcomer_behind:
        return None, start
    return _estimate(ahead.tracks, start, now=now), None


def _estimate(tracks: Mapping[int, Track], start: int, *, now: int) -> EstimateFacts:
    calibrated = interval(tracks, start - now).since(now)
    if calibrated.low is None:
        held, of = 0, too_few(sum(len(one.scores) for one in tracks.values()))
    else:
        track = tracks.get(calibrated.bucket, UNTAUGHT)
        held, of = track.held, track.of
    return EstimateFacts(calibrated.expected, calibrated.low, calibrated.high, now, held, of)
