"""Makes the trials of sweeps, asks their jobs for what was asked of the sweep, and ends sweeps."""

from collections.abc import Sequence
import time

from controller.duty import guarded
from controller.sweeps import proposing
from controller.sweeps.halving import promotions
from controller.sweeps.proposals import Proposals
from controller.sweeps.turns import Turns
from store.store import Store
from store.sweeps import reads as sweeps
from store.sweeps import trials_writes as trials
from store.sweeps.facts import DueSweep, SweepTerms
from torchyard.contract.sweeps import ADAPTIVE, Halving, Point, SweepState

_MOST_SAMPLED = 4
"""Points that one step proposes by results: after thousands of trials each takes seconds, in which others wait."""
_RUN_S = 0.5
"""After so long a run begins no further step: other duties have their turn, and the next run goes on with the rest."""
_WAIT_S = 0.25
"""How long a run waits for points by results: most take less, and later ones are taken by a later run."""


class Sweeps:
    """A duty. What it proposes it proposes outside of a transaction, which then checks that it is still the next."""

    interval_s = 5.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = Turns()
        self._proposals = Proposals()
        self._terms: dict[str, tuple[int, SweepTerms]] = {}
        """What of its spec says when each sweep goes on, and the version of the sweep that said it."""

    def run(self) -> bool:
        """Does a step of each sweep for which there is time. Returns whether there is more. Raises Unavailable."""
        ends = time.monotonic() + _RUN_S
        due, done = sweeps.due(self._store), False
        self._proposals.keep({(sweep.id, sweep.made) for sweep in due})
        self._terms = {sweep.id: self._terms[sweep.id] for sweep in due if sweep.id in self._terms}
        for sweep in self._turns.order(due):
            if time.monotonic() > ends:
                break
            self._turns.had(sweep)
            done |= self._guarded_step(sweep)
        return done or self._proposals.busy or not self._turns.all_had(due)

    def _guarded_step(self, sweep: DueSweep) -> bool:
        return guarded(
            lambda: self._step(sweep),
            of=f"sweep {sweep.id}",
            tell=lambda: trials.note_failed_step(self._store, sweep.id),
        )

    def _step(self, sweep: DueSweep) -> bool:
        if sweep.asked is not None:
            return trials.ask(self._store, sweep.id)
        if sweep.state is SweepState.CANCELLING:
            return not sweep.open and trials.settle(self._store, sweep.id)
        return sweep.state is SweepState.RUNNING and self._go_on(sweep, self._terms_of(sweep))

    def _terms_of(self, sweep: DueSweep) -> SweepTerms:
        version, terms = self._terms.get(sweep.id, (None, None))
        if terms is None or version != sweep.version:
            terms = sweeps.terms(self._store, sweep.id)
            self._terms[sweep.id] = sweep.version, terms
        return terms

    def _go_on(self, sweep: DueSweep, terms: SweepTerms) -> bool:
        if terms.max_failed is not None and sweep.failed >= terms.max_failed:
            return trials.stop(self._store, sweep.id)
        if terms.halving is not None and (found := self._promotions(sweep, terms, terms.halving)):
            return trials.promote(self._store, sweep.id, found)
        most = _MOST_SAMPLED if sweep.method in ADAPTIVE else trials.MOST
        room = min(terms.parallel - sweep.active, sweep.total - sweep.made, most)
        if room > 0:
            points = self._points(sweep, room)
            return bool(points) and trials.make(self._store, sweep.id, points, first=sweep.made)
        return sweep.made == sweep.total and not sweep.active and trials.settle(self._store, sweep.id)

    def _promotions(self, sweep: DueSweep, terms: SweepTerms, halving: Halving) -> dict[int, int]:
        """Returns the trials that go on, as many as there is room for: those that have come furthest first."""
        room = min(terms.parallel - sweep.active, trials.MOST)
        if room <= 0 or sweep.open == sweep.active:  # none waits
            return {}
        known = sweeps.trials_at_rungs(self._store, sweep.id)
        found = promotions(halving, known, mode=sweep.mode, total=sweep.total)
        return dict([*found.items()][:room])

    def _points(self, sweep: DueSweep, count: int) -> Sequence[Point]:
        """Returns the next points; none as long as they are being found."""
        if sweep.method not in ADAPTIVE:
            return proposing.points(sweeps.spec(self._store, sweep.id), first=sweep.made, count=count)
        key = sweep.id, sweep.made
        if not self._proposals.busy:
            spec, known = sweeps.spec(self._store, sweep.id), sweeps.known_trials(self._store, sweep.id)
            # More may have been made since: then these are refused, and the next run proposes others.
            self._proposals.begin(key, proposing.by_results(spec, known, made=sweep.made, count=count))
        found = self._proposals.take(key, wait_s=_WAIT_S)
        if found == []:  # as its limits ended the search
            return proposing.by_chance(sweeps.spec(self._store, sweep.id), sweep.made)
        return found or []
