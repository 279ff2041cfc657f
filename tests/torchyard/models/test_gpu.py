"""On a machine with GPUs (`make test-gpu`): a GPU predicts what the CPU does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.torchyard.models.test_loading import digits, films, walls
import torchyard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine"),
]

PICTURES = [np.random.default_rng(number).integers(256, size=(40, 40, 3)).astype(np.uint8) for number in range(5)]
TEXTS = ["a fine film", "a dull film " * 40, "film"]


@pytest.mark.parametrize(("make", "sources"), [(digits, PICTURES), (walls, PICTURES), (films, TEXTS)])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 0.01), ("auto", 0.1)])
def test_a_gpu_predicts_what_the_cpu_does(
    tmp_path: Path, make: Callable[[], dict[str, Any]], sources: list[Any], precision: str, tolerance: float
) -> None:
    state = make()
    state["config"]["training"]["precision"] = precision
    torch.save(state, tmp_path / "best.pt")
    gpu, cpu = (cast(Any, torchyard.load(tmp_path / "best.pt", device=device)) for device in ("auto", "cpu"))
    assert (gpu.device.type, cpu.device.type) == ("cuda", "cpu")
    found, expected = (model.logits(model.prepare(sources)).cpu() for model in (gpu, cpu))
    assert torch.allclose(found, expected, atol=tolerance)
    assert len(gpu.predict(sources, batch_size=2)) == len(sources)
