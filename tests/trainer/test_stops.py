"""However a run was stopped, on however many ranks: it ends as one uninterrupted process does."""

from random import Random
from typing import Any

import pytest

from tests.trainer.stops import Draw, differences, draw

SEED = 53
MORE_SEEDS = range(54, 64)
LOCAL: dict[str, Any] = {"kind": "local sgd", "epochs": 3, "logs_every": 3, "spoilt": None}
SAVED_WHERE_STOPPED = (
    Draw(
        **LOCAL, size=29, batch=3, accumulate=2, ranks=2, later=2, manner="stop", at=5, saves_every=1,
        sections={"optimizer": {"name": "adamw", "lr": 0.01}, "ema": {"decay": 0.8}},
    ),
    Draw(
        **LOCAL, size=13, batch=2, accumulate=1, ranks=2, later=2, manner="pause", at=9, saves_every=3,
        sections={"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}},
    ),
)  # fmt: skip
"""A save is due at the step where they stop, and a save makes the ranks' weights equal."""
STOPPED_AFTER_THE_LAST_STEP = Draw(
    **LOCAL | {"epochs": 1, "logs_every": 1}, size=14, batch=2, accumulate=1, ranks=2, later=2, manner="stop", at=3,
    saves_every=2, sections={"optimizer": {"name": "adamw", "lr": 0.01}, "lr_scheduler": {"name": "cosine"}},
)  # fmt: skip
"""Only an evaluation is left, and what is published then has the learning rate of the last step."""
CHOSEN = (*SAVED_WHERE_STOPPED, STOPPED_AFTER_THE_LAST_STEP)
"""Each was a fault. They are trained by the processes of the others: processes take longer to start."""
TOGETHER = 100
"""Draws that are trained by the same processes, at most."""


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(
    ("seed", "count", "most_ranks"),
    [
        (SEED, 3, 2),
        pytest.param(SEED, 200, 4, marks=pytest.mark.thorough),
        *(pytest.param(seed, 500, 4, marks=pytest.mark.thorough) for seed in MORE_SEEDS),
    ],
)
def test_a_run_that_was_stopped_ends_as_if_nothing_had_stopped_it(seed: int, count: int, most_ranks: int) -> None:
    numbers = Random(seed)
    draws = [*CHOSEN, *(draw(numbers, most_ranks=most_ranks) for _ in range(count))]
    for start in range(0, len(draws), TOGETHER):
        assert differences(draws[start : start + TOGETHER]) == []
