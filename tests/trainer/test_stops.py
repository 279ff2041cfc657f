"""However a run was stopped, on however many ranks: it ends as one uninterrupted process does."""

from random import Random

import pytest

from tests.trainer.stops import differences, draw

SEED = 53
TOGETHER = 100
"""Draws that are trained by the same processes, at most."""


@pytest.mark.parametrize("count", [20, *(pytest.param(many, marks=pytest.mark.thorough) for many in (200, 5000))])
def test_a_run_that_was_stopped_ends_as_if_nothing_had_stopped_it(count: int) -> None:
    numbers = Random(SEED)
    draws = [draw(numbers) for _ in range(count)]
    for start in range(0, count, TOGETHER):
        assert differences(draws[start : start + TOGETHER]) == []
