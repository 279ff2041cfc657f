"""Models that compute on a device are exported for any."""

from pathlib import Path

from tests.device import sim
from tests.trainer.ranks import on_ranks, results
from tests.trainer.test_evaluate import checkpoint, pictures


def exported(library: Path, folder: Path) -> tuple[str, float]:
    from torchyard.models import export, load

    sim.load(library)
    model = load(folder / "state.pt", device="sim")
    done = export(model, to="torch-export", path=folder / "it.pt2")
    return str(next(model.module.parameters()).device), done.difference


def test_a_model_on_a_device_is_exported_for_any(library: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    ((device, difference),) = results(on_ranks(1, exported, library, tmp_path))
    assert device == "sim:0"
    assert difference < 1e-5
