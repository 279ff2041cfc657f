"""A recipe ends with the same checkpoint, bit for bit, with torchrun and from the warm process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import kill_attempt
from tests.trainer.runs import same, state
from tests.worker.attempt import Attempt
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess


@pytest.mark.thorough
@pytest.mark.parametrize("ways", [("cold", "warm"), ("agent", "warm")], ids="-".join)
def test_a_recipe_ends_bit_equal_with_every_launcher(
    tmp_path: Path, warm_process: WarmProcess, ways: tuple[str, str]
) -> None:
    one, other = (_trained(tmp_path / way, way, warm_process) for way in ways)
    assert one["model"]
    assert one.keys() == other.keys()
    different = [key for key in one if not same(one[key], other[key])]
    assert different == ["config"]  # it contains the path of the data


def _trained(folder: Path, way: str, warm: WarmProcess) -> dict[str, Any]:
    launcher = "warm" if way == "warm" else "torchrun"
    attempt = Attempt.create(folder, warm=None if way == "cold" else warm, launcher=launcher)
    data = attempt.run.root / "pictures.npz"
    numbers = np.random.default_rng(1)
    pictures = numbers.integers(0, 255, (48, 8, 8), dtype=np.uint8)
    labels = np.arange(48) % 4
    np.savez(data, x_train=pictures[:32], y_train=labels[:32], x_test=pictures[32:], y_test=labels[32:])
    config = {
        "data": {"source": f"file://{data}"},
        "training": {"epochs": 1, "per_device_batch_size": 4},
    }
    try:
        attempt.start_spec({"trainer": "image-classification", "config": config})
        report = attempt.report()
        assert report.reason is EndReason.COMPLETED, report
        newest = max(path.name for path in attempt.run.checkpoints.iterdir())
        return state(attempt.run, newest)
    finally:
        assert kill_attempt(attempt.job_id, attempt.number) == []
