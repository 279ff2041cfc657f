"""Makes the estimates of when waiting jobs start, in small slices of the daemon's idle time.

One worker of the service does, which holds a lease. No start ever waits for it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
from datetime import timedelta
import logging
import time

from scheduling.replay import replay
from store.cluster.cluster_mark import ClusterMark, read_mark
from store.queue import calibrations, estimating, forecast_lease
from store.queue.estimates_facts import LEASE, Lease, Seen
from store.store import Store
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Unavailable
from torchyard.contract.wire.units import LONGEST_STOP_GRACE
from worker.placement.estimating import estimates_of
from worker.placement.pace import Pace

SLICE_S = 0.005
_RENEW_S = LEASE.total_seconds() / 3
_QUIET_S = 60.0
"""Pause while no job waits. The lease expires meanwhile, and nobody misses it."""
_SOON_S = 1.0
"""What has changed is looked at so late: jobs that can start have started by then."""
_MOST_S = 5.0
"""A replay ends after so much processor time: the jobs that start later than it has come have no estimate.

So estimates are no older than 84 minutes on a large cluster where nothing changes: see `worker.placement.pace`.
"""
_RETRY_S = 10.0
_BROKEN_S = 300.0

logger = logging.getLogger(__name__)


class Forecaster:
    """Only the daemon's thread may call it. It raises nothing: what fails is done again."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: str,
        observe: Callable[[], Sequence[DeviceReport]],
        max_stop_grace: timedelta = LONGEST_STOP_GRACE,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        """`observe` returns the worker's devices as they are now; `processor` the seconds that the thread has used."""
        self._store = store
        self._id = worker_id
        self._observe = observe
        self._max_stop_grace = max_stop_grace
        self._clock = clock
        self._processor = processor
        self._pace = Pace()
        self._spent_s = 0.0
        """The processor time of all its work."""
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._steps = self._forever()
        self._next = 0.0

    def due_in(self) -> float:
        """Returns in how many seconds it wants to go on; 0: at once."""
        return max(0.0, self._next - self._clock())

    def work(self, may_go_on: Callable[[], bool]) -> None:
        """Does what is due until `SLICE_S` is over, or `may_go_on` says no. A transaction is not divided."""
        ends, spent = self._clock() + SLICE_S, self._processor()
        try:
            while self.due_in() == 0 and self._clock() < ends and may_go_on():
                self._next = self._clock() + next(self._steps)
        except Unavailable as error:
            logger.warning("%s", error.message)
            self._begin_anew(_RETRY_S)
        except Exception:  # estimates are hints: the jobs go on
            logger.exception("the estimates of starts failed")
            self._begin_anew(_BROKEN_S)
        finally:
            self._spent_s += self._processor() - spent

    def notice(self) -> None:
        """Notes that something may have changed: if this worker makes the estimates, it does so as soon as it may."""
        if self._lease is not None:
            soon = max(self._clock() + _SOON_S, self._pace.rested_at)
            self._next = min(self._next, soon)

    def forget(self) -> None:
        """Throws away what was begun. Another daemon of this pool has the lease now, or it expires."""
        self._begin_anew(_RETRY_S)

    def leave(self) -> None:
        """Throws away what was begun, and gives the lease back: another worker goes on at once."""
        lease = self._lease
        self.forget()
        if lease is not None:
            with contextlib.suppress(Unavailable):  # then it expires
                self._release(lease)

    def _begin_anew(self, rest_s: float) -> None:
        self._steps.close()
        self._steps = self._forever()
        self._lease = None
        self._next = self._clock() + rest_s

    def _release(self, lease: Lease) -> None:
        with self._store.write("estimates") as session:
            forecast_lease.release(session, lease)

    def _forever(self) -> Generator[float]:
        """Yields after each small step for how many seconds it pauses."""
        scored: ClusterMark | None = None
        while True:
            lease = self._hold()
            if lease is None:
                yield _RENEW_S
                continue
            yield 0.0
            with self._store.read() as session:
                mark = read_mark(session)
            if mark != scored:  # otherwise no job has started
                while estimating.score_forecasts(self._store, lease):
                    yield 0.0
                scored = mark
            waits = True
            if self._pace.may_begin(self._clock(), mark):
                waits = yield from self._estimate(lease, mark)
            yield _RENEW_S if waits else _QUIET_S

    def _hold(self) -> Lease | None:
        self._lease = estimating.hold_lease(self._store, self._id)
        self._renew_at = self._clock() + _RENEW_S
        return self._lease

    def _estimate(self, lease: Lease, mark: ClusterMark) -> Generator[float, None, bool]:
        """Makes all estimates anew, and notes what that took. Returns whether any job waits."""
        began, stored = self._spent_s, False
        try:
            devices = self._observe()
            with self._store.read() as session:
                seen = estimating.read_line(
                    session, here=self._id, devices=devices, max_stop_grace=self._max_stop_grace
                )
            yield 0.0
            if seen is None:
                return False
            stored = yield from self._replay(lease, seen)
            yield 0.0  # so that the last step is counted
            return True
        finally:
            self._pace.note(self._clock(), cost_s=self._spent_s - began, mark=mark if stored else None)

    def _replay(self, lease: Lease, seen: Seen) -> Generator[float, None, bool]:
        """Returns whether the estimates are stored: they are not if the lease is lost."""
        began = self._spent_s
        starts: Mapping[str, int] = {}
        for reached in replay(seen.snapshot):
            starts = reached.starts
            if self._spent_s - began > _MOST_S:
                break
            if self._clock() >= self._renew_at and self._hold() != lease:
                return False
            yield 0.0
        with self._store.read() as session:
            tracks = calibrations.tracks(session)
        made = yield from estimates_of(seen, starts, tracks)
        with self._store.write("estimates") as session:
            return estimating.store_estimates(
                session, lease, made_at=made.made_at, estimated=made.estimated, after=made.after
            )
