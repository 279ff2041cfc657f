"""The estimates of when waiting jobs start, by the worker that makes them.

Each write first changes the row of the lease, in its transaction: who has lost it writes nothing, and only one writes.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from store.db.database import in_us
from store.queue import calibrations, estimates, forecast_lease, forecasting, forecasts
from store.queue.estimates_facts import LEASE, Estimated, Lease, Seen
from store.store import Store
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.wire.units import LONGEST_STOP_GRACE

_FURTHEST_US = 10 * 366 * 24 * 3_600_000_000
"""An estimate that is further ahead says no more than that. Far beyond, there are no dates."""


def hold_lease(store: Store, worker_id: str, *, lease_us: int = in_us(LEASE)) -> Lease | None:
    """Takes a free or expired lease, or renews the worker's own; None if another worker holds it.

    Only reads if another one does, or if more than half of the own is left. Raises Unavailable.
    """
    with store.read() as session:
        own, may_take = forecast_lease.look(session, worker_id, lease_us=lease_us)
    if own is not None or not may_take:
        return own
    with store.write("estimates") as session:
        return forecast_lease.take(session, worker_id, lease_us=lease_us)


def read_line(
    session: Session, *, here: str, devices: Sequence[DeviceReport], max_stop_grace: timedelta = LONGEST_STOP_GRACE
) -> Seen | None:
    """Returns the cluster with the first jobs in the line as the worker `here` reads it; None if no job waits.

    `devices`: the worker's own, as they are now. `max_stop_grace`: what cuts the jobs' `stop_grace`.
    """
    seen = forecasting.first_in_line(session, observed={here: devices}, max_stop_grace=max_stop_grace)
    return seen if seen.snapshot.line else None


def store_estimates(
    session: Session, lease: Lease, *, made_at: int, estimated: Sequence[Estimated], after: int | None
) -> bool:
    """Stores estimates in place of all others, and keeps those that are to be scored. Returns False if the lease is
    lost: nothing is stored then.

    `made_at`: when the line was read, by the database's clock. `after`: jobs further behind start later; None if there
    are none, or nobody knows. Jobs that have left the line meanwhile are left out.
    """
    now = forecast_lease.guard(session, lease)
    if now is None:
        return False
    made_at = min(made_at, now)  # the clock may have jumped back
    lined_at = estimates.still_waiting(session, estimated)
    possible = [_bounded(one, made_at) for one in estimated if one.job_id in lined_at]
    estimates.replace_all(session, possible, made_at=made_at)
    forecasts.add(session, possible, made_at=made_at, lined_at=lined_at)
    forecast_lease.note_made(session, made_at=made_at, after=None if after is None else _moment(after, made_at))
    return True


def score_forecasts(store: Store, lease: Lease) -> int:
    """Scores the estimates that were kept and whose jobs have started, and drops those whose jobs will not start as
    it was estimated: cancelled, paused, of another priority. Returns how many it has scored; 0 if the lease is lost.

    Each is scored once. Only reads if there are none. Raises Unavailable.
    """
    with store.read() as session:
        if not forecasts.any_ended(session) and not estimates.any_of_others(session):
            return 0
    with store.write("score") as session:
        now = forecast_lease.guard(session, lease)
        if now is None:
            return 0
        estimates.delete_of_others(session)
        ended = forecasts.lock_ended(session)
        scored = calibrations.learn(session, ended, now=now)
        forecasts.drop(session, (one for one in ended if one.started_at is None))
        return scored


def _bounded(one: Estimated, made_at: int) -> Estimated:
    """Returns the estimate with moments that can be, in their order."""
    expected = _moment(one.expected, made_at)
    low = None if one.low is None else min(_moment(one.low, made_at), expected)
    high = None if one.high is None else max(_moment(one.high, made_at), expected)
    return replace(one, wait_us=_wait(one.wait_us), expected=expected, low=low, high=high)


def _moment(at: int, made_at: int) -> int:
    return made_at + _wait(at - made_at)


def _wait(wait_us: int) -> int:
    return min(max(0, wait_us), _FURTHEST_US)
