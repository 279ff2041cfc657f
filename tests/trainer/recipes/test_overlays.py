"""Overlays: their content and their file names."""

import io
from pathlib import Path

import numpy as np
from PIL import Image
import torch

from torchyard.contract.records import Manifest
from torchyard.models.palette import IGNORED_COLOUR, palette
from torchyard.run.publishing import publish
from trainer.recipes.overlays import GAP, overlays


def drawn(folder: Path, names: list[str]) -> list[str]:
    """Saves a checkpoint with overlays of these names. Returns its files."""
    count = len(names)
    pictures = torch.arange(count * 3 * 32 * 32).reshape(count, 3, 32, 32).byte()
    truth = pictures[:, :1] > 100
    files = overlays(names, pictures, truth.byte(), ~truth, colours=[[0, 0, 0], [255, 255, 255]])
    publish(folder, "one", files, Manifest(step=1, files=[]))
    manifest = Manifest.from_json((folder / "one" / "manifest.json").read_bytes())
    return [file.path for file in manifest.files]


def test_an_overlay_shows_the_picture_the_truth_and_the_prediction_side_by_side(tmp_path: Path) -> None:
    (path,) = drawn(tmp_path, ["wall"])
    assert path == "overlays/wall.png"
    shown = np.asarray(Image.open(tmp_path / "one" / path))
    assert shown.shape == (32, 3 * 32 + 2 * GAP, 3)
    picture = np.arange(3 * 32 * 32).astype(np.uint8).reshape(3, 32, 32).transpose(1, 2, 0)
    truth = np.repeat((picture[:, :, :1] > 100) * 255, 3, axis=2)
    step = 32 + GAP
    assert np.array_equal(shown[:, :32], picture)
    assert np.array_equal(shown[:, step : step + 32], truth)
    assert np.array_equal(shown[:, 2 * step :], 255 - truth)


def test_classes_have_their_colours_and_ignored_pixels_one_that_no_class_has() -> None:
    colours = palette(3)
    assert colours == [[0, 0, 0], [128, 0, 0], [0, 128, 0]]  # as in the devkit of Pascal VOC
    assert [palette(256)[number] for number in (15, 16, 255)] == [[192, 128, 128], [0, 64, 0], IGNORED_COLOUR]
    masks = torch.tensor([[0, 1], [2, 255]], dtype=torch.uint8).reshape(1, 1, 1, 4)
    files = overlays(["a"], torch.zeros(1, 3, 1, 4, dtype=torch.uint8), masks, masks, colours=colours)
    written = io.BytesIO()
    writer = files["overlays/a.png"]
    assert not isinstance(writer, bytes)
    writer(written)
    shown = np.asarray(Image.open(written))[0, 4 + GAP : 8 + GAP]
    assert shown.tolist() == [*colours, IGNORED_COLOUR]


def test_file_names_are_allowed_by_the_manifest_and_unique(tmp_path: Path) -> None:
    names = ["Riß 1", "Riß*1", "Ri__1-1", ".hidden", "x" * 300, "..", "-"]
    paths = drawn(tmp_path, names)
    assert len(set(paths)) == len(names)
    assert paths[0] == "overlays/Ri__1.png"
    assert all((tmp_path / "one" / path).is_file() for path in paths)
