"""Makes the trials of sweeps, asks their jobs for what was asked of the sweep, and ends sweeps."""

from collections.abc import Sequence
from itertools import count
import time

from controller.duty import guarded
from controller.sweeps import proposals
from controller.sweeps.halving import promotions
from controller.sweeps.proposals import Proposals
from store.store import Store
from store.sweeps import advance, due
from store.sweeps.facts import DueSweep, SweepTerms
from torchyard.contract.sweeps.spec import ADAPTIVE, Halving, Point, SweepSpec, SweepState

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
        with self._store.read() as session:
            sweeps, done = due.list_due(session), False
        self._proposals.keep({(sweep.id, sweep.made) for sweep in sweeps})
        self._terms = {sweep.id: self._terms[sweep.id] for sweep in sweeps if sweep.id in self._terms}
        for sweep in self._turns.order(sweeps):
            if time.monotonic() > ends:
                break
            self._turns.had(sweep)
            done |= self._guarded_step(sweep)
        return done or self._proposals.busy or not self._turns.all_had(sweeps)

    def _guarded_step(self, sweep: DueSweep) -> bool:
        return guarded(
            lambda: self._step(sweep),
            of=f"sweep {sweep.id}",
            tell=lambda: self._note_failed_step(sweep),
        )

    def _step(self, sweep: DueSweep) -> bool:
        if sweep.asked is not None:
            with self._store.write("ask_trials") as session:
                return advance.ask_jobs(session, sweep.id)
        if sweep.state is SweepState.CANCELLING:
            return not sweep.open and self._settle(sweep)
        return sweep.state is SweepState.RUNNING and self._go_on(sweep, self._terms_of(sweep))

    def _terms_of(self, sweep: DueSweep) -> SweepTerms:
        version, terms = self._terms.get(sweep.id, (None, None))
        if terms is None or version != sweep.version:
            with self._store.read() as session:
                terms = due.read_terms(session, sweep.id)
            self._terms[sweep.id] = sweep.version, terms
        return terms

    def _go_on(self, sweep: DueSweep, terms: SweepTerms) -> bool:
        if terms.max_failed is not None and sweep.failed >= terms.max_failed:
            with self._store.write("ask_trials") as session:
                return advance.stop_failing(session, sweep.id)
        if terms.halving is not None and (wanted := self._promotions(sweep, terms, terms.halving)):
            with self._store.write("promote_trials") as session:
                return advance.promote_trials(session, sweep.id, wanted)
        most = _MOST_SAMPLED if sweep.method in ADAPTIVE else advance.MOST
        room = min(terms.parallel - sweep.active, sweep.total - sweep.made, most)
        if room > 0:
            points = self._points(sweep, room)
            return bool(points) and self._make_trials(sweep, points)
        return sweep.made == sweep.total and not sweep.active and self._settle(sweep)

    def _make_trials(self, sweep: DueSweep, points: Sequence[Point]) -> bool:
        while True:
            try:
                with self._store.write("make_trials") as session:
                    return advance.make_trials(session, sweep.id, points, first=sweep.made)
            except advance.OnlyFirst as only:
                points = points[: only.count]

    def _settle(self, sweep: DueSweep) -> bool:
        with self._store.write("ask_trials") as session:
            return advance.settle(session, sweep.id)

    def _note_failed_step(self, sweep: DueSweep) -> None:
        with self._store.write("ask_trials") as session:
            advance.note_failed_step(session, sweep.id)

    def _promotions(self, sweep: DueSweep, terms: SweepTerms, halving: Halving) -> dict[int, int]:
        """Returns the trials that go on, as many as there is room for: those that have come furthest first."""
        room = min(terms.parallel - sweep.active, advance.MOST)
        if room <= 0 or sweep.open == sweep.active:  # none waits
            return {}
        with self._store.read() as session:
            trials = due.read_trials_at_rungs(session, sweep.id)
        wanted = promotions(halving, trials, mode=sweep.mode, total=sweep.total)
        return dict([*wanted.items()][:room])

    def _points(self, sweep: DueSweep, count: int) -> Sequence[Point]:
        """Returns the next points; none as long as they are being found."""
        if sweep.method not in ADAPTIVE:
            return proposals.points_of(self._read_spec(sweep), first=sweep.made, count=count)
        key = sweep.id, sweep.made
        if not self._proposals.busy:
            with self._store.read() as session:
                spec, known = due.read_spec(session, sweep.id), due.read_known_trials(session, sweep.id)
            # More may have been made since: then these are refused, and the next run proposes others.
            self._proposals.begin(key, proposals.by_results(spec, known, made=sweep.made, count=count))
        points = self._proposals.take(key, wait_s=_WAIT_S)
        if points == []:  # as its limits ended the search
            return proposals.by_chance(self._read_spec(sweep), sweep.made)
        return points or []

    def _read_spec(self, sweep: DueSweep) -> SweepSpec:
        with self._store.read() as session:
            return due.read_spec(session, sweep.id)


class Turns:
    """Remembers who had a turn, and when."""

    def __init__(self) -> None:
        self._clock = count(1)
        self._owners: dict[str, int] = {}
        self._sweeps: dict[str, int] = {}
        self._round: set[str] = set()

    def order(self, due: Sequence[DueSweep]) -> list[DueSweep]:
        """Returns one sweep of each owner, then a second one of each, and so on; first whose turn is longest ago."""
        self._owners = {each.owner: self._owners.get(each.owner, 0) for each in due}
        self._sweeps = {each.id: self._sweeps.get(each.id, 0) for each in due}
        ranks: dict[str, int] = {}
        turns: dict[str, int] = {}
        for each in sorted(due, key=lambda each: (self._sweeps[each.id], each.id)):
            turns[each.id] = ranks[each.owner] = ranks.get(each.owner, -1) + 1
        return sorted(due, key=lambda each: (turns[each.id], self._owners[each.owner], each.id))

    def had(self, sweep: DueSweep) -> None:
        """Notes that a sweep has its turn now."""
        self._owners[sweep.owner] = self._sweeps[sweep.id] = next(self._clock)
        self._round.add(sweep.id)

    def all_had(self, due: Sequence[DueSweep]) -> bool:
        """Returns whether all of these had a turn since this was last so: then another round begins."""
        if not self._round.issuperset(each.id for each in due):
            return False
        self._round.clear()
        return True
