"""`python -m bench.halving` compares a sweep by `asha` with the whole grid of the same 27 points, on `digits`.

For each of three seeds it prints by how much the best validation accuracy is worse, and the optimizer steps of all
trials. Every trial is a job of a real service. Takes some minutes, and is not part of `make bench`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import math
import time
from typing import Any

from bench import table
from bench.service import scratch, up
from bench.table import Row
from torchyard.client import Client
from torchyard.contract.sweeps.spec import SweepState

SEEDS = (0, 1, 2)
EPOCHS = 9
PARAMETERS: dict[str, Any] = {
    "config.optimizer.lr": [1e-4, 1e-3, 1e-2],
    "config.optimizer.weight_decay": [0.0, 1e-2, 1e-1],
    "config.loss.label_smoothing": [0.0, 0.05, 0.2],
}
POINTS = math.prod(len(values) for values in PARAMETERS.values())
GRID: dict[str, Any] = {"method": "grid"}
ASHA: dict[str, Any] = {
    "method": "asha",
    "trials": POINTS,
    "max_parallel": 4,
    "halving": {"min": 1, "max": EPOCHS, "factor": 3, "unit": "epochs"},
}
METRIC = "val/accuracy"
_POLL_S = 2.0


@dataclass(frozen=True)
class Found:
    """What a sweep has found, and the steps that its trials did."""

    best: float
    steps: int


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder, slots=2) as service, service.client() as client:
        for seed in SEEDS:
            grid, asha = run(client, GRID, seed=seed), run(client, ASHA, seed=seed)
            best = f"seed {seed}: best {METRIC}, below the grid's {grid.best:.4f} by"
            yield Row(best, "", [grid.best - asha.best], at_most=0.005)
            yield Row("– steps of all trials", "", [asha.steps], "grid", [grid.steps], ratio_at_most=0.4)


def run(client: Client, method: dict[str, Any], *, seed: int) -> Found:
    """Runs a sweep to its end."""
    job = {
        "trainer": "image-classification",
        "resources": {"devices_per_node": 1},
        "config": {
            "data": {"source": "digits", "val_fraction": 0.3},
            "training": {"epochs": EPOCHS, "seed": seed},
        },
        "checkpoint": {"monitor": METRIC, "mode": "max", "keep_last": 1},
    }
    name = f"{method['method']}-{seed}"
    sweep = client.sweeps.create({"name": name, "seed": seed, "parameters": PARAMETERS, "job": job, **method})
    while not (view := client.sweeps.get(sweep.id)).state.ended:
        time.sleep(_POLL_S)
    assert view.state is SweepState.FINISHED, view.status_reason
    assert view.best is not None
    steps = sum(trial.step for trial in client.sweeps.trials(sweep.id))
    return Found(float(view.best.value), steps)


if __name__ == "__main__":
    table.main(measure)
