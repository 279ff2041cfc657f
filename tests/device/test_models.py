"""Models that compute on a device are exported for any."""

from pathlib import Path

import pytest

from tests.device import sim
from tests.trainer.ranks import on_ranks, results
from tests.trainer.test_evaluate import checkpoint, pictures
from torchyard.contract.models.names import Format

FILES: dict[Format, str] = {"safetensors": "it.safetensors", "torch-export": "it.pt2"}


def exported(library: Path, folder: Path, to: Format) -> tuple[str, float]:
    from torchyard.models import export, load

    sim.load(library)
    model = load(folder / "state.pt", device="sim")
    done = export(model, to=to, path=folder / FILES[to])
    return str(next(model.module.parameters()).device), done.difference


@pytest.mark.parametrize("to", ["safetensors", pytest.param("torch-export", marks=pytest.mark.thorough)])
def test_a_model_on_a_device_is_exported_for_any(library: Path, tmp_path: Path, to: Format) -> None:
    checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    ((device, difference),) = results(on_ranks(1, exported, library, tmp_path, to))
    assert device == "sim:0"
    assert difference < 1e-5
