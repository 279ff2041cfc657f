"""The simulated device's matrix where the shares of the last batch differ, on two, three and four ranks."""

import math
from pathlib import Path
from typing import Any

import pytest

from tests.device.runs import Outcome, train
from tests.device.test_training import ADMITTED, STRATEGIES, config
from tests.trainer.recipes.test_text import source
from tests.trainer.runs import points, small_pictures

GLOBAL_BATCH = 24
MICRO_BATCH = 2
PICTURES = 4 * GLOBAL_BATCH + 7
"""The last batch has seven: shares of 4 and 3, of 3, 2 and 2, of 2, 2, 2 and 1."""
TEXTS = 62
"""A sixteenth is kept for validation: of the rest, the last batch has ten."""
RANKS = (2, 3, 4)

pytestmark = pytest.mark.thorough  # test_sampler and test_stops have shares that differ on the CPU


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("strategy", "precision"), ADMITTED)
def test_ranks_with_unequal_shares_learn_the_same_weights(
    tmp_path: Path, library: Path, strategy: str, precision: str, ranks: int
) -> None:
    wanted = config(strategy, precision, **sizes(ranks))
    data = small_pictures(tmp_path, train=PICTURES)
    run, outcomes = train(tmp_path / "run", library, wanted, data=data, ranks=ranks)
    steps, losses = zip(*points(run, "train/loss"), strict=True)
    assert steps == (4, 5, 8, 10)
    assert all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]
    assert all(outcome.weights == outcomes[0].weights for outcome in outcomes)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_with_unequal_shares_learn_what_one_process_learns(
    tmp_path: Path, library: Path, strategy: str, ranks: int
) -> None:
    data = str(source(tmp_path / "texts", texts=TEXTS))
    (alone,) = learn(tmp_path / "alone", library, data, "ddp", ranks=1)
    for outcome in learn(tmp_path / "together", library, data, strategy, ranks=ranks):
        for name, values in alone.weights.items():
            assert outcome.weights[name] == pytest.approx(values, rel=1e-3, abs=1e-5), name


def learn(root: Path, library: Path, data: str, strategy: str, *, ranks: int) -> list[Outcome]:
    wanted = {
        "data": {"source": "file:///x", "vocabulary": 300, "max_length": 16},
        "model": {"dropout": 0.0},
        "training": {"epochs": 2, "precision": "fp32", **sizes(ranks)},
        "optimizer": {"name": "sgd", "lr": 0.05},
        "distributed": STRATEGIES[strategy],
    }
    _, outcomes = train(root, library, wanted, data=data, trainer="text-classification", ranks=ranks)
    return outcomes


def sizes(ranks: int) -> dict[str, Any]:
    """The same global batch on any number of ranks."""
    return {
        "epochs": 2,
        "max_steps": None,
        "per_device_batch_size": MICRO_BATCH,
        "gradient_accumulation_steps": GLOBAL_BATCH // (MICRO_BATCH * ranks),
    }
