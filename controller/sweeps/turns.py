"""In which order a controller looks at sweeps: owners take turns, whatever number of sweeps each has."""

from collections.abc import Sequence
from itertools import count

from store.sweeps.facts import DueSweep


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
        places: dict[str, int] = {}
        for each in sorted(due, key=lambda each: (self._sweeps[each.id], each.id)):
            places[each.id] = ranks[each.owner] = ranks.get(each.owner, -1) + 1
        return sorted(due, key=lambda each: (places[each.id], self._owners[each.owner], each.id))

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
