"""Pictures that are black to a model: refused, or told, before the first step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.trainer.data.test_pictures import arrays, config, everything
from tests.trainer.ranks import recipe
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import Segmentation
from trainer.data.folders import load_folders
from trainer.data.scanning import Scan
from trainer.recipes import make_task

CPU = torch.device("cpu")
STEPS: NDArray[np.float64] = np.linspace(0, 1, 64).reshape(8, 8)


def classes(root: Path, values: NDArray[Any], suffix: str = ".tif") -> Path:
    """Writes two class folders with four pictures of these values each."""
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(values).save(root / name / f"{number}{suffix}")
    return root


def walls(root: Path, values: NDArray[Any], masks: NDArray[Any], suffix: str = ".png") -> Path:
    for folder, pixels, end in (("images", values, suffix), ("masks", masks, ".png")):
        (root / folder).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(pixels).resize((32, 32), 0).save(root / folder / f"{number}{end}")
    return root


def test_floats_of_0_to_1_in_a_file_are_read_as_those_of_an_array(tmp_path: Path) -> None:
    data = load_folders(classes(tmp_path, STEPS.astype(np.float32)), config())
    assert np.array_equal(everything(data.train)[0][0, 0].numpy(), (STEPS * 255).round())


@pytest.mark.parametrize(
    ("values", "suffix"),
    [
        pytest.param((STEPS * 255).astype(np.float32), ".tif", id="floats of 0 to 255"),
        pytest.param(np.full((8, 8), np.nan, np.float32), ".tif", id="NaN"),
        pytest.param((STEPS * 255).astype(np.int32), ".tif", id="32 bits"),
        pytest.param((STEPS * 255).astype(np.uint16), ".png", id="8 bits in 16"),
        pytest.param((STEPS * 255).astype(np.uint16), ".ppm", id="8 bits in a PPM of 16"),
        pytest.param(np.zeros((8, 8), np.uint8), ".png", id="black"),
        pytest.param(np.zeros((8, 8), np.uint16), ".png", id="black with 16 bits"),
        pytest.param(np.dstack([np.zeros((8, 8, 3), np.uint8), STEPS.astype(np.uint8)]), ".png", id="alpha"),
    ],
)
def test_pictures_that_are_black_to_a_model_are_refused(
    tmp_path: Path, values: NDArray[Any], suffix: str, approved: Approved
) -> None:
    source = classes(tmp_path / "data", values, suffix)
    with pytest.raises(DataError) as raised:
        make_task(recipe(data={"normalize": "none", "cache": "none"}), source=str(source), device=CPU)
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
    both = walls(tmp_path / "walls", values, np.tri(8, dtype=np.uint8) * 255, suffix)
    wanted = Segmentation.model_validate(
        {"model": {"name": "unet_small"}, "data": {"source": both.as_uri(), "image_size": 32, "cache": "none"}}
    )
    with pytest.raises(DataError) as raised:
        make_task(wanted, source=str(both), device=CPU)
    assert str(raised.value) == approved.of_row("of pairs", tmp_path=tmp_path)


def test_arrays_of_one_value_are_refused(tmp_path: Path, approved: Approved) -> None:
    path = arrays(tmp_path / "a.npz", x_train=np.ones((6, 8, 8), dtype=np.uint8))
    with pytest.raises(DataError) as raised:
        make_task(recipe(), source=str(path), device=CPU)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize(("largest", "told"), [(65_535, False), (9_000, False), (4095, True)])
def test_pictures_of_16_bits_may_be_dark_and_the_job_is_told(
    tmp_path: Path, largest: int, told: bool, approved: Approved
) -> None:
    values = (STEPS * largest).astype(np.uint16)
    source = classes(tmp_path / "data", values, ".png")
    Image.fromarray(values // 256).save(source / "cat" / "0.png")  # one black picture is none of our business
    assert notes(source) == ([approved.of_row("text")] if told else [])


@pytest.mark.parametrize("classes", [None, ["background", "wall"]])
def test_masks_without_a_second_class_are_told_where_they_are_not_refused(
    tmp_path: Path, classes: list[str] | None, approved: Approved
) -> None:
    black = np.full((8, 8), 0 if classes else 1, dtype=np.uint8)
    source = walls(tmp_path / "data", (STEPS * 255).astype(np.uint8), black)
    extra = {"data": {"classes": classes}} if classes else {"loss": {"pos_weight": 2.0}}
    assert notes(source, **extra) == [approved.of_row("text", tmp_path=tmp_path)]


@dataclass
class Listening(Scan):
    """Keeps what the job would be told."""

    told: list[str] = field(default_factory=list[str])

    def note(self, notes: Sequence[str], level: Literal["info", "warning"] = "warning") -> None:
        self.told += notes


def notes(source: Path, **sections: Any) -> list[str]:
    scan = Listening()
    if (source / "images").is_dir():
        data = {"source": source.as_uri(), "image_size": 32, "cache": "none", **sections.pop("data", {})}
        wanted: Any = Segmentation.model_validate({"model": {"name": "unet_small"}, "data": data, **sections})
    else:
        wanted = recipe(data={"cache": "none"})
    make_task(wanted, source=str(source), device=CPU, scan=scan)
    return scan.told
