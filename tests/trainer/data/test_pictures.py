"""Sources of pictures: their batches, and the errors for bad sources."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
import subprocess
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.trainer.ranks import recipe
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig
from torchyard.models.arrays import picture as picture_of
from trainer.data import digests
from trainer.data import folders as class_folders
from trainer.data.arrays import load_digits, load_npz
from trainer.data.folders import load_folders
from trainer.data.images import ImageData, Pictures, measure
from trainer.recipes.classification import Classifier, make_task

CPU = torch.device("cpu")
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def config(**data: Any) -> ImageDataConfig:
    return ImageDataConfig.model_validate(data)


def everything(pictures: Pictures, *, workers: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(pictures.batches(list(torch.arange(len(pictures)).split(3)), device=CPU, workers=workers))
    return torch.cat([batch for batch, _ in batches]), torch.cat([labels for _, labels in batches])


def arrays(path: Path, **changes: Any) -> Path:
    """Writes a valid `.npz` file with `changes`; an array that is None is left out."""
    content: dict[str, Any] = {
        "x_train": np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8),
        "y_train": np.array([3, 5, 3, 5, 3, 5]),
        "x_test": np.zeros((2, 8, 8), dtype=np.uint8),
        "y_test": np.array([5, 3]),
        **changes,
    }
    with path.open("wb") as file:
        np.savez(file, **{name: array for name, array in content.items() if array is not None})  # pyright: ignore[reportArgumentType]
    return path


def picture(path: Path, *, size: tuple[int, int] = (8, 8), mode: str = "L", value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path)


def folders(root: Path) -> Path:
    for split, count in (("train", 3), ("val", 2)):
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                picture(root / split / name / f"{number}.png", value=label * 100 + number)
    return root


def test_digits_are_split_by_the_seed_with_every_class_in_both_parts() -> None:
    first, again, other = (load_digits(config(split_seed=seed)) for seed in (0, 0, 1))
    assert len(first.train) + len(first.val) == 1797
    assert len(first.val) == pytest.approx(0.15 * 1797, abs=6)
    pictures, labels = everything(first.val)
    assert set(labels.tolist()) == set(range(10))
    assert (pictures.min(), pictures.max()) == (0, 1)
    assert torch.equal(pictures, everything(again.val)[0])
    assert not torch.equal(labels, everything(other.val)[1])


@pytest.mark.parametrize("shape", [(6, 8, 8), (6, 8, 8, 1), (6, 1, 8, 8)])
def test_an_npz_file_may_have_its_channels_first_or_last(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(6 * 64, dtype=np.uint8)
    data = load_npz(arrays(tmp_path / "a.npz", x_train=values.reshape(shape)), config())
    assert (data.channels, data.height, data.width) == (1, 8, 8)
    pictures, labels = everything(data.train)
    assert torch.equal(pictures.flatten(), torch.from_numpy(values))
    assert labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.classes == ["3", "5"]


def test_an_npz_file_of_colours_may_have_texts_as_labels_and_is_resized(tmp_path: Path) -> None:
    path = arrays(
        tmp_path / "colours.npz",
        x_train=np.ones((2, 10, 12, 3), dtype=np.float64),
        y_train=np.array(["dog", "cat"]),
        x_test=np.zeros((1, 10, 12, 3)),
        y_test=np.array([["dog"]]),
    )
    data = load_npz(path, config(image_size=16))
    assert (data.channels, data.height, data.width, data.classes) == (3, 16, 16, ["cat", "dog"])
    pictures, labels = everything(data.train)
    assert pictures.dtype == torch.float32
    assert torch.allclose(pictures, torch.ones(()))
    assert labels.tolist() == [1, 0]
    assert everything(data.val)[1].tolist() == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"y_test": None},
        {"x_train": np.zeros((0, 8, 8), dtype=np.uint8)},
        {"x_test": np.zeros((2, 9, 9), dtype=np.uint8)},
        {"x_train": np.zeros((6, 8), dtype=np.uint8)},
        {"x_train": np.zeros((6, 8, 8, 7), dtype=np.uint8)},
        {"x_train": np.zeros((6, 8, 8), dtype=np.int64)},
        {"x_test": np.zeros((2, 8, 8), dtype=np.float32)},
        {"y_train": np.arange(5)},
        {"y_train": np.zeros((6, 2), dtype=np.int64)},
        {"y_train": np.zeros(6)},
        {"y_train": np.zeros(6, dtype=np.int64)},
        {"y_test": np.array([5, 9])},
        {"y_train": np.array([None] * 6)},
        {"x_train": np.full((6, 8, 8), 255.0)},
        {"x_train": np.full((6, 8, 8), -1.0, dtype=np.float16)},
        {"x_train": np.zeros((6, 8, 8)), "x_test": np.full((2, 8, 8), 255.0)},
        {"x_train": np.full((6, 8, 8), np.nan)},
    ],
)
def test_a_bad_npz_file_is_named_with_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], approved: Approved
) -> None:
    path = arrays(tmp_path / "bad.npz", **changes)
    with pytest.raises(DataError) as caught:
        load_npz(path, config())
    assert caught.value.message.startswith(str(path))
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


def test_the_floats_that_train_are_those_that_are_predicted(tmp_path: Path) -> None:
    for highest, taken in ((1.0, True), (1.0005, True), (1.01, False), (255.0, False)):
        pictures = np.linspace(0, highest, 6 * 64, dtype=np.float32).reshape(6, 8, 8)
        path = arrays(tmp_path / "a.npz", x_train=pictures, x_test=pictures[:2])
        for read in (partial(load_npz, path, config()), partial(picture_of, pictures[5], channels=1)):
            if taken:
                read()
            else:
                with pytest.raises(DataError, match=f"to {highest:g}, and floats of a picture are 0…1: scale them"):
                    read()


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 torn"])
def test_a_file_that_is_not_an_npz_file_is_named(tmp_path: Path, content: bytes, approved: Approved) -> None:
    path = tmp_path / "torn.npz"
    path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        load_npz(path, config())
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
    with pytest.raises(DataError, match="there is no"):
        load_npz(tmp_path / "absent.npz", config())
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError) as raised:
        load_npz(tmp_path / "one.npy", config())
    assert str(raised.value) == approved("not npz file", tmp_path=tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_class_folders_with_their_own_split(tmp_path: Path, workers: int) -> None:
    data = load_folders(folders(tmp_path), config())
    assert (data.classes, data.channels, data.height, data.width) == (["cat", "dog"], 1, 8, 8)
    pictures, labels = everything(data.train, workers=workers)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert pictures[:, 0, 0, 0].tolist() == [0, 1, 2, 100, 101, 102]
    assert everything(data.val, workers=workers)[1].tolist() == [0, 0, 1, 1]


def test_class_folders_of_one_level_are_split_and_colours_are_kept(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(10):
            picture(tmp_path / name / f"{number}.png", size=(10 + number, 9), mode="RGB" if number else "L")
    data = load_folders(tmp_path, config(image_size=8, val_fraction=0.2))
    assert (len(data.train), len(data.val), data.channels) == (16, 4, 3)
    assert everything(data.train)[0].shape == (16, 3, 8, 8)
    assert everything(data.val)[1].tolist() == [0, 0, 1, 1]


def _no_picture(root: Path) -> Path:
    path = root / "train" / "dog" / "9.png"
    path.write_text("no picture")
    return path


def _torn(root: Path) -> Path:
    path = root / "train" / "dog" / "9.png"
    Image.effect_noise((8, 8), 50).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    return path


def _other_size(root: Path) -> Path:
    path = root / "val" / "dog" / "9.png"
    picture(path, size=(9, 8))
    return path


def _only_in_val(root: Path) -> Path:
    picture(root / "val" / "fox" / "0.png")
    return root / "val" / "fox"


def _empty_class(root: Path) -> Path:
    (root / "train" / "fox").mkdir()
    return root / "train" / "fox"


def _folder_in_class(root: Path) -> Path:
    path = root / "train" / "dog" / "more"
    path.mkdir()
    return path


def _one_class(root: Path) -> Path:
    for file in (root / "train" / "dog").iterdir():
        file.unlink()
    (root / "train" / "dog").rmdir()
    return root


@pytest.mark.parametrize(
    "harm", [_no_picture, _torn, _other_size, _only_in_val, _empty_class, _folder_in_class, _one_class]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_folder_is_named(tmp_path: Path, harm: Callable[[Path], Path], workers: int) -> None:
    path = harm(folders(tmp_path))
    with pytest.raises(DataError) as caught:
        everything(load_folders(tmp_path, config()).train, workers=workers)
    assert caught.value.message.startswith(str(path))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        load_folders(tmp_path, config())


def test_digests_identify_the_content_and_the_split(tmp_path: Path) -> None:
    first, again, other = (
        load_digits(config(split_seed=seed, image_size=size)) for seed, size in ((0, 8), (0, 9), (1, 8))
    )
    assert first.identity.digest == again.identity.digest == other.identity.digest
    assert first.split_hash == again.split_hash != other.split_hash
    npz = load_npz(arrays(tmp_path / "a.npz"), config())
    changed = load_npz(arrays(tmp_path / "b.npz", y_test=np.array([3, 5])), config())
    assert npz.identity.digest != changed.identity.digest
    assert npz.split_hash == changed.split_hash
    root = folders(tmp_path / "folders")
    before = load_folders(root, config())
    picture(root / "val" / "dog" / "2.png")
    after = load_folders(root, config())
    assert before.identity.digest != after.identity.digest
    assert before.split_hash != after.split_hash


def test_auto_normalization_gives_training_pictures_mean_0_and_deviation_1(tmp_path: Path) -> None:
    data = load_digits(config())
    values = measure(data.train, in_memory=True, workers=0)
    pictures = everything(data.train)[0]
    assert values.mean == pytest.approx([pictures.mean().item()], abs=1e-5)
    assert values.std == pytest.approx([pictures.std().item()], abs=1e-4)
    onfile = measure(load_folders(folders(tmp_path), config()).train, in_memory=False, workers=0)
    assert onfile.mean == pytest.approx([sum((0, 1, 2, 100, 101, 102)) / 6 / 255])


def test_pictures_with_nan_are_named(tmp_path: Path, approved: Approved) -> None:
    pictures = np.full((6, 8, 8), np.nan, dtype=np.float32)
    path = arrays(tmp_path / "nan.npz", x_train=pictures, x_test=pictures[:2])
    with pytest.raises(DataError) as raised:
        make_task(recipe(), source=str(path), device=CPU)
    assert str(raised.value) == approved("message", path=path)


def test_grey_pictures_reach_a_torchvision_model_with_three_channels() -> None:
    classifier = make_task(recipe(model={"name": "resnet18"}, data={"image_size": 32}), source="digits", device=CPU)
    inputs, _ = next(classifier.training_batches([torch.arange(2)], epoch=1))
    assert inputs.shape == (2, 3, 32, 32)
    assert torch.equal(inputs[:, 0], inputs[:, 2])


@pytest.mark.thorough
def test_real_pictures_in_class_folders(tmp_path: Path) -> None:
    archive = SHARED / "mnist-imagefolder.tar.gz"
    if not archive.exists():
        pytest.skip(f"{archive.name} is not in ../shared/data beside the checkout")
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tmp_path], check=True)
    (root,) = (path.parent for path in tmp_path.rglob("train"))
    classifier: Classifier = make_task(recipe(), source=str(root), device=CPU)
    data: ImageData = classifier.data
    assert (len(data.train), len(data.val), data.channels, data.height) == (6000, 1000, 1, 28)
    assert data.classes == [str(digit) for digit in range(10)]
    assert classifier.normalization.mean == pytest.approx([0.13], abs=0.01)
    torch.manual_seed(0)
    assert classifier.evaluate(None).metrics["val/accuracy"] < 0.5


def halves(path: Path, *, width: int = 64, height: int = 32) -> Path:
    """Writes a wide picture: black in its left quarter, white in its right one, grey between them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.full((height, width), 128, dtype=np.uint8)
    values[:, : width // 4], values[:, -width // 4 :] = 0, 255
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize(("resize", "values"), [("crop", [128]), ("squash", [0, 128, 255])])
def test_pictures_keep_their_aspect_unless_they_are_squashed(tmp_path: Path, resize: str, values: list[int]) -> None:
    for name in ("cat", "dog"):
        for number in range(2):
            halves(tmp_path / "folders" / name / f"{number}.png")
    files = load_folders(tmp_path / "folders", config(image_size=32, resize=resize))
    wide = np.asarray(Image.open(tmp_path / "folders" / "cat" / "0.png"))[None].repeat(2, axis=0)
    path = arrays(tmp_path / "wide.npz", x_train=wide, x_test=wide, y_train=np.array([0, 1]), y_test=np.array([0, 1]))
    for data in (files, load_npz(path, config(image_size=32, resize=resize))):
        pictures, _ = everything(data.train)
        assert pictures.shape[1:] == (1, 32, 32)
        found = set(pictures[:, :, :, [0, 1, 15, 16, -2, -1]].unique().tolist())
        assert found == set(values)


def test_a_crop_fraction_cuts_off_the_edge(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(2):
            halves(tmp_path / name / f"{number}.png", width=32)
    data = load_folders(tmp_path, config(image_size=32), crop_fraction=0.5)
    assert everything(data.train)[0][..., 2:-2].unique().tolist() == [128]


def test_decoded_pictures_are_the_same_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "SETTLED_NS", 0)
    root = folders(tmp_path / "data")
    before, _ = everything(load_folders(root, config(image_size=16)).train)
    monkeypatch.setattr(class_folders, "decode", None)  # nothing is decoded any more
    again = load_folders(root, config(image_size=16, split_seed=1)).train
    assert torch.equal(everything(again)[0], before)
    assert torch.equal(everything(again, workers=2)[0], before)
    for other in ({"image_size": 17}, {"image_size": 16, "resize": "squash"}, {"image_size": 16, "cache": "none"}):
        with pytest.raises(TypeError, match="not callable"):
            everything(load_folders(root, config(**other)).train)
