"""Which points a sweep tries next. Pure: the rows say what was tried and how it went."""

from collections.abc import Callable, Iterator

from store.sweeps.facts import KnownTrials
from torchyard.contract.chosen import drawn_point, known_point
from torchyard.contract.sweeps import Point, SweepSpec


def by_results(spec: SweepSpec, known: KnownTrials, *, made: int, count: int) -> Callable[[], Iterator[Point]]:
    """Returns what finds the points of the next trials, `count` at most, by how the first `made` trials have gone.

    `known`: those and perhaps more; they are never changed. What finds the points makes them, too. The same for the
    same arguments. Fewer than `count` are left of a sweep that ends soon. It may take seconds.
    """
    from controller.sweeps.sampling import sample  # Optuna takes half a second, which few sweeps need

    return lambda: sample(spec, known(made), count=min(count, spec.size - made))


def by_chance(spec: SweepSpec, number: int) -> list[Point]:
    """Returns the point of a trial, which follows from the seed and its number alone."""
    return [drawn_point(spec, number)]


def points(spec: SweepSpec, *, first: int, count: int) -> list[Point]:
    """Returns the points, from the number `first` on, of a method whose points depend on their numbers alone."""
    found = (known_point(spec, number) for number in range(first, min(first + count, spec.size)))
    return [point for point in found if point is not None]
