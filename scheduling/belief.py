"""How long jobs are believed to run: a hint, which a job may get wrong or lie about, and always within its limit."""

from datetime import timedelta
import math

from scheduling.shapes import limit_rounded_up
from scheduling.snapshot import Running, Waiting
from torchyard.contract.wire.units import DEFAULT_TIME_LIMIT

_US = timedelta(microseconds=1)
_LEAST_US = timedelta(minutes=1) // _US
"""What a job that runs is believed to need at least: it said that it is done before, and is not."""
_DEFAULT_LIMIT_US = DEFAULT_TIME_LIMIT // _US


def is_unknown(job: Running | Waiting) -> bool:
    """Returns whether nothing says how long the job runs: no progress, no run of its owner's, no limit but the default.

    The plan believes that it runs to its limit, which is safe. That is no estimate: most end long before.
    """
    has_length = (job.fraction is not None and job.fraction > 0) or (job.usual_us is not None and job.usual_us > 0)
    return not has_length and job.limit_us == _DEFAULT_LIMIT_US and not (isinstance(job, Running) and job.stopping)


def limit_left(job: Running, now: int) -> int:
    """Returns the microseconds that the job may still run."""
    return max(0, job.limit_us - job.ran_us - max(0, now - job.since))


def believed_left(job: Running, now: int) -> int:
    """Returns the microseconds that the job is believed to run still: 0 if it was asked to stop."""
    if job.stopping:
        return 0
    if job.ends is not None:
        return max(0, job.ends - now)
    ran_us = job.ran_us + max(0, now - job.since)
    left = _left(ran_us, job.fraction, job.usual_us)
    most = limit_left(job, now)
    return most if left is None else min(max(left, _LEAST_US), most)


def most_left(job: Waiting) -> int:
    """Returns the most microseconds that the job may run, by the class of its limit: equal for all of its shape."""
    return limit_rounded_up(max(0, job.limit_us - job.ran_us))


def believed_length(job: Waiting) -> int:
    """Returns the microseconds that the waiting job is believed to run."""
    left, most = _left(job.ran_us, job.fraction, job.usual_us), max(0, job.limit_us - job.ran_us)
    return most if left is None else min(max(left, _LEAST_US), most)


def _left(ran_us: int, fraction: float | None, usual_us: int | None) -> int | None:
    """Returns what a job needs that ran so long; None if nothing is known of it."""
    if fraction is not None and ran_us > 0 and not math.isnan(fraction) and fraction > 0:
        done = min(fraction, 1.0)
        return round(ran_us * min((1.0 - done) / done, 1e6))
    if usual_us is None or usual_us <= 0:
        return None
    # It runs longer than its owner's others: twice as long, or twice that.
    doublings = max(0, math.floor(math.log2(ran_us / usual_us)) + 1) if ran_us >= usual_us else 0
    return (usual_us << min(doublings, 40)) - ran_us
