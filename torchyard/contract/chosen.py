"""The points that follow from a sweep's spec and their numbers alone."""

import math
import random

from pydantic import JsonValue

from torchyard.contract.sweeps import ADAPTIVE, Point, Range, SweepSpec, Values, grid_point


def known_point(spec: SweepSpec, number: int) -> Point | None:
    """Returns the point of a trial; None if it depends on the results of others."""
    if spec.method in ADAPTIVE:
        return None
    if spec.method == "list":
        return dict(spec.points[number])
    if spec.method == "random":
        return drawn_point(spec, number)
    return {} if spec.method == "array" else grid_point(spec.parameters, number)


def drawn_point(spec: SweepSpec, number: int) -> Point:
    """Returns a point of random values, by the seed and the number."""
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
