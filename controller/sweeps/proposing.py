"""Which points a sweep tries next. Pure: the rows say what was tried and how it went."""

from collections.abc import Callable, Iterator
import math
import random

from pydantic import JsonValue

from store.facts.sweeps import KnownTrials
from torchyard.contract.sweeps import Point, Range, SweepSpec, Values, grid_point


def by_results(spec: SweepSpec, known: KnownTrials, *, made: int, count: int) -> Callable[[], Iterator[Point]]:
    """Returns what finds the points of the next trials, `count` at most, by how the first `made` trials have gone.

    `known`: those and perhaps more; they are never changed. What finds the points makes them, too. The same for the
    same arguments. Fewer than `count` are left of a sweep that ends soon. It may take seconds.
    """
    from controller.sweeps.sampling import sample  # Optuna takes half a second, which few sweeps need

    return lambda: sample(spec, known(made), count=min(count, spec.size - made))


def by_chance(spec: SweepSpec, number: int) -> list[Point]:
    """Returns the point of a trial, which follows from the seed and its number alone."""
    return [_random(spec, number)]


def points(spec: SweepSpec, *, first: int, count: int) -> list[Point]:
    """Returns the points, from the number `first` on, of a method whose points depend on their numbers alone."""
    return [_point(spec, number) for number in range(first, min(first + count, spec.size))]


def _point(spec: SweepSpec, number: int) -> Point:
    if spec.method == "list":
        return dict(spec.points[number])
    if spec.method == "random":
        return _random(spec, number)
    return {} if spec.method == "array" else grid_point(spec.parameters, number)


def _random(spec: SweepSpec, number: int) -> Point:
    chance = random.Random(f"{spec.seed}:{number}")  # noqa: S311 - not a secret
    return {key: _any_of(values, chance) for key, values in spec.parameters.items()}


def _any_of(values: Values, chance: random.Random) -> JsonValue:
    if not isinstance(values, Range):
        return chance.choice(values)
    if (size := values.size) is not None and not values.log:
        return values.number(chance.randrange(size))
    if not values.log:
        return chance.uniform(values.min, values.max)
    low, high = (values.min - 0.5, values.max + 0.5) if values.integer else (values.min, values.max)
    found = math.exp(chance.uniform(math.log(low), math.log(high)))
    return round(min(max(found, values.min), values.max)) if values.integer else min(max(found, low), high)
