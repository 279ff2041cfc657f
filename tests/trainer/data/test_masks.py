"""Masks of several classes: palettes, grey values and colours, and what is no class."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest

from tests.approved import Approved
from torchyard.contract.errors import DataError, InvalidSpec
from torchyard.contract.recipes import SegmentationDataConfig
from torchyard.contract.spec.spec import parse_spec
from trainer.data.masks import IGNORED, read_mask
from trainer.data.pairs import load_pairs

CLASSES = ["background", "square", "disc"]
COLOURS = [[0, 0, 0], [128, 0, 0], [0, 128, 0]]
VALUES: NDArray[np.uint8] = np.array([[0, 1, 2, 255], [2, 2, 1, 0]], dtype=np.uint8)


def config(**data: Any) -> SegmentationDataConfig:
    return SegmentationDataConfig.model_validate({"source": "file:///x", "image_size": 32, "classes": CLASSES, **data})


def saved(path: Path, values: NDArray[Any], *, mode: str | None = None) -> Path:
    image = Image.fromarray(values)
    if mode == "P":
        image = Image.frombytes("P", image.size, values.tobytes())
        image.putpalette([channel for colour in [*COLOURS, *[[224, 224, 192]] * 253] for channel in colour])
    image.save(path)
    return path


def read(path: Path, **data: Any) -> NDArray[np.uint8]:
    return np.asarray(read_mask(path, config(**data)))


@pytest.mark.parametrize(("mode", "kind"), [("P", np.uint8), (None, np.uint8), (None, np.uint16)])
def test_the_value_of_a_pixel_is_its_class_also_with_a_palette(tmp_path: Path, mode: str | None, kind: Any) -> None:
    path = saved(tmp_path / "mask.png", VALUES.astype(kind), mode=mode)
    with Image.open(path) as image:
        assert image.mode == (mode or ("L" if kind is np.uint8 else "I;16"))
    for palette in (None, COLOURS):
        assert np.array_equal(read(path, palette=palette), VALUES)


@pytest.mark.parametrize("alpha", [False, True])
def test_colours_are_found_in_the_palette_of_the_configuration(tmp_path: Path, alpha: bool) -> None:
    classes = np.where(VALUES == 255, 0, VALUES)
    colours = np.array(COLOURS, dtype=np.uint8)[classes]
    if alpha:
        colours = np.concatenate([colours, np.full((*classes.shape, 1), 40, dtype=np.uint8)], axis=2)
    path = saved(tmp_path / "mask.png", colours)
    assert np.array_equal(read(path, palette=COLOURS), classes)
    without_discs = np.where(classes == 2, IGNORED, classes)
    assert np.array_equal(read(path, palette=COLOURS, ignore_index=2), without_discs)


def test_another_value_may_be_the_ignored_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "mask.png", np.array([[0, 9], [2, 1]], dtype=np.uint8))
    assert read(path, ignore_index=9).tolist() == [[0, IGNORED], [2, 1]]


@pytest.mark.parametrize(
    ("values", "palette"),
    [
        (VALUES + np.uint8(1), COLOURS),
        (np.array([[0, 300]], dtype=np.uint16), None),
        (np.full((2, 2, 3), 7, dtype=np.uint8), None),
        (np.full((2, 2, 3), 7, dtype=np.uint8), COLOURS),
        (np.full((2, 2, 3), 255, dtype=np.uint8), COLOURS),
    ],
)
def test_what_is_no_class_is_named_with_its_file(
    tmp_path: Path, values: NDArray[Any], palette: Any, approved: Approved
) -> None:
    path = saved(tmp_path / "mask.png", values)
    with pytest.raises(DataError) as caught:
        read(path, palette=palette)
    assert caught.value.message == approved.of_row("message", path=path)


def test_masks_are_resized_by_the_nearest_pixel_and_counted(tmp_path: Path) -> None:
    values = np.kron(np.array([[0, 2], [2, IGNORED]], dtype=np.uint8), np.ones((32, 32), dtype=np.uint8))
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for stem in ("a", "b"):
        saved(tmp_path / "images" / f"{stem}.png", np.zeros((64, 64, 3), dtype=np.uint8))
        saved(tmp_path / "masks" / f"{stem}.png", values, mode="P")
    assert load_pairs(tmp_path, config()).train.count_classes(workers=0) == [256, 0, 512]


@pytest.mark.parametrize(
    "data",
    [
        {"classes": ["background"]},
        {"classes": [str(number) for number in range(256)]},
        {"classes": ["one", "one"]},
        {"palette": COLOURS},
        {"classes": CLASSES, "palette": COLOURS[:2]},
        {"classes": CLASSES, "palette": [*COLOURS, COLOURS[0]]},
        {"classes": CLASSES, "mask_threshold": 0.2},
    ],
)
def test_classes_that_cannot_be_told_apart_are_refused(data: dict[str, Any], approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec({"trainer": "segmentation", "config": {"data": {"source": "file:///x", **data}}})
    assert caught.value.errors[0].message == approved.of_row("message")
