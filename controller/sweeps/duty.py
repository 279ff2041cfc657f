"""Makes the trials of sweeps, asks their jobs for what was asked of the sweep, and ends sweeps."""

from collections.abc import Sequence
import logging

from controller.sweeps import proposing
from controller.sweeps.halving import promotions
from store.commands import trials
from store.facts.sweeps import DueSweep
from store.queries import sweeps
from store.store import Store
from torchyard.contract.errors import Unavailable
from torchyard.contract.sweeps import ADAPTIVE, Halving, Point, SweepState

_log = logging.getLogger(__name__)
_MOST_SAMPLED = 4
"""Points that one step proposes by results: after thousands of trials each takes a second, in which others wait."""


class Sweeps:
    """A duty. What it proposes it proposes outside of a transaction, which then checks that it is still the next."""

    interval_s = 5.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Does one step of each sweep. Returns whether any did something. Raises Unavailable."""
        done = [self._guarded_step(sweep) for sweep in sweeps.due(self._store)]
        return any(done)

    def _guarded_step(self, sweep: DueSweep) -> bool:
        try:
            return self._step(sweep)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - the others go on
            _log.exception("sweep %s is left for the next run", sweep.id)
            return False

    def _step(self, sweep: DueSweep) -> bool:
        if sweep.asked is not None:
            return trials.ask(self._store, sweep.id)
        if sweep.state is SweepState.CANCELLING:
            return not sweep.open and trials.settle(self._store, sweep.id)
        return sweep.state is SweepState.RUNNING and self._go_on(sweep)

    def _go_on(self, sweep: DueSweep) -> bool:
        if sweep.spec.max_failed is not None and sweep.failed >= sweep.spec.max_failed:
            return trials.stop(self._store, sweep.id)
        if sweep.spec.halving is not None and (found := self._promotions(sweep, sweep.spec.halving)):
            return trials.promote(self._store, sweep.id, found)
        most = _MOST_SAMPLED if sweep.spec.method in ADAPTIVE else trials.MOST
        room = min(sweep.spec.parallel - sweep.active, sweep.total - sweep.made, most)
        if room > 0:
            return trials.make(self._store, sweep.id, self._points(sweep, room), first=sweep.made)
        return sweep.made == sweep.total and not sweep.active and trials.settle(self._store, sweep.id)

    def _promotions(self, sweep: DueSweep, halving: Halving) -> dict[int, int]:
        """Returns the trials that go on, as many as there is room for: those that have come furthest first."""
        room = min(sweep.spec.parallel - sweep.active, trials.MOST)
        if room <= 0 or sweep.open == sweep.active:  # none waits
            return {}
        known = sweeps.all_trials(self._store, sweep.id)
        found = promotions(halving, known, mode=sweep.spec.mode, total=sweep.total)
        return dict([*found.items()][:room])

    def _points(self, sweep: DueSweep, count: int) -> Sequence[Point]:
        if sweep.spec.method not in ADAPTIVE:
            return proposing.points(sweep.spec, first=sweep.made, count=count)
        known = sweeps.all_trials(self._store, sweep.id)
        # More may have been made since: then these are refused, and the next run proposes others.
        return proposing.propose(sweep.spec, known[: sweep.made], count=count)
