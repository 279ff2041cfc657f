"""Pictures and their masks: pairing, decoding, and the errors for bad sources."""

from collections.abc import Callable
from pathlib import Path
import shutil
from typing import Any
import zipfile

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.trainer.walls import blob, pair, walls
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import SegmentationDataConfig
from trainer.data import digests
from trainer.data import pairs as module
from trainer.data.pairs import PairData, Pairs, load_pairs

CPU = torch.device("cpu")
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def config(**data: Any) -> SegmentationDataConfig:
    return SegmentationDataConfig.model_validate({"source": "file:///x", "image_size": 32, **data})


def everything(pairs: Pairs, *, workers: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(pairs.batches(list(torch.arange(len(pairs)).split(3)), device=CPU, workers=workers))
    return torch.cat([pictures for pictures, _ in batches]), torch.cat([masks for _, masks in batches])


def names(pairs: Pairs) -> list[str]:
    return [pair.name for pair in pairs.pairs]


def one(root: Path, **data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the picture and the mask of the pair `a`, from whichever split has it."""
    data_ = load_pairs(root, config(**data))
    pairs = data_.train if names(data_.train) == ["a"] else data_.val
    pictures, masks = everything(pairs)
    return pictures[0], masks[0]


def test_pictures_come_with_their_own_masks_in_the_order_of_names(tmp_path: Path) -> None:
    data = load_pairs(walls(tmp_path), config(val_fraction=0.25))
    assert (len(data.train), len(data.val)) == (6, 2)
    assert sorted(names(data.train) + names(data.val)) == [f"wall-{number}" for number in range(8)]
    pictures, masks = everything(data.train)
    assert (pictures.shape, pictures.dtype) == ((6, 3, 32, 32), torch.uint8)
    assert (masks.shape, masks.dtype) == ((6, 1, 32, 32), torch.uint8)
    values = torch.tensor([20 + 20 * int(name.removeprefix("wall-")) for name in names(data.train)])
    assert torch.equal(masks[:, 0], torch.from_numpy(blob()).byte().expand(6, -1, -1))
    assert torch.equal(pictures[:, 0], masks[:, 0] * values[:, None, None].byte())
    assert torch.equal(pictures[:, 1], masks[:, 0] * (values[:, None, None] // 2).byte())
    assert not pictures[:, 2].any()


def test_loader_processes_give_the_same(tmp_path: Path) -> None:
    data = load_pairs(walls(tmp_path), config())
    for alone, together in zip(everything(data.train), everything(data.train, workers=2), strict=True):
        assert torch.equal(alone, together)


def test_the_split_depends_on_the_names_and_the_seed_alone(tmp_path: Path) -> None:
    first = load_pairs(walls(tmp_path / "here"), config())
    again = load_pairs(walls(tmp_path / "there"), config())
    other = load_pairs(tmp_path / "here", config(split_seed=1))
    assert names(first.val) == names(again.val) != names(other.val)
    assert first.split_hash == again.split_hash != other.split_hash
    assert first.identity.digest == again.identity.digest == other.identity.digest
    pair(tmp_path / "there", "wall-3", mask=np.random.default_rng(0).random((32, 32)) > 0.5)
    changed = load_pairs(tmp_path / "there", config())
    assert changed.identity.digest != first.identity.digest
    assert changed.split_hash == first.split_hash


@pytest.mark.parametrize(("fraction", "held_out"), [(0.01, 1), (0.99, 7), (0.5, 4)])
def test_each_split_has_at_least_one_picture(tmp_path: Path, fraction: float, held_out: int) -> None:
    assert len(load_pairs(walls(tmp_path), config(val_fraction=fraction)).val) == held_out


def test_a_source_may_have_its_own_split(tmp_path: Path) -> None:
    walls(tmp_path / "train", count=3)
    walls(tmp_path / "val", count=1)
    data = load_pairs(tmp_path, config(val_fraction=0.9))
    assert names(data.train) == ["train/wall-0", "train/wall-1", "train/wall-2"]
    assert names(data.val) == ["val/wall-0"]
    assert everything(data.val)[0].shape == (1, 3, 32, 32)


def test_files_of_other_kinds_pair_by_their_stem(tmp_path: Path) -> None:
    picture, mask = pair(tmp_path, "a")
    pair(tmp_path, "b.1")
    Image.open(picture).save(picture.with_suffix(".jpg"))
    Image.open(mask).save(mask.with_suffix(".bmp"))
    picture.unlink()
    mask.unlink()
    (tmp_path / "images" / ".DS_Store").touch()
    data = load_pairs(tmp_path, config())
    assert sorted(names(data.train) + names(data.val)) == ["a", "b.1"]


def test_a_jpeg_mask_becomes_zero_and_one(tmp_path: Path) -> None:
    pair(tmp_path, "b")
    _, mask = pair(tmp_path, "a")
    Image.open(mask).save(mask.with_suffix(".jpg"), quality=40)
    mask.unlink()
    written = np.asarray(Image.open(mask.with_suffix(".jpg")))
    assert len(np.unique(written)) > 2
    truth = one(tmp_path)[1][0]
    assert np.array_equal(truth.numpy(), written > 127)
    assert np.array_equal(truth.numpy(), blob())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "transparent palette"])
def test_masks_of_every_mode(tmp_path: Path, mode: str) -> None:
    pair(tmp_path, "b")
    _, file = pair(tmp_path, "a")
    grey = Image.fromarray(blob().astype(np.uint8) * 255)
    if mode == "I;16":
        Image.fromarray(blob().astype(np.uint16) * 65535).save(file)
    elif mode == "transparent palette":
        palette = Image.fromarray(blob().astype(np.uint8), mode="P")
        palette.putpalette([0, 0, 0, 160, 0, 0])
        palette.save(file, transparency=bytes([255, 128]))
    else:
        grey.convert(mode).save(file)
    assert np.array_equal(one(tmp_path)[1][0].numpy(), blob())


@pytest.mark.parametrize(
    ("threshold", "top", "values"), [(0.5, 255, (127, 128)), (0.0, 255, (0, 1)), (0.5, 65535, (32767, 32768))]
)
def test_a_value_above_the_threshold_of_full_scale_is_positive(
    tmp_path: Path, threshold: float, top: int, values: tuple[int, int]
) -> None:
    pair(tmp_path, "b")
    _, file = pair(tmp_path, "a")
    Image.fromarray(np.where(blob(), values[1], values[0]).astype(np.uint8 if top == 255 else np.uint16)).save(file)
    assert np.array_equal(one(tmp_path, mask_threshold=threshold)[1][0].numpy(), blob())


def test_pictures_and_masks_are_turned_upright(tmp_path: Path) -> None:
    lying = blob(height=64, width=32)
    upright = np.rot90(lying, -1)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it upright
    for stem, mask_lies in (("a", False), ("b", True)):
        picture, mask = pair(tmp_path, stem, mask=lying)
        Image.open(picture).save(picture.with_suffix(".jpg"), exif=exif, quality=95)
        picture.unlink()
        if mask_lies:
            Image.open(mask).save(mask, exif=exif)
        else:
            Image.fromarray(upright.astype(np.uint8) * 255).save(mask)
    data = load_pairs(tmp_path, config(image_size=64))
    expected = upright.repeat(2, axis=0)
    for part in (data.train, data.val):
        pictures, masks = everything(part)
        assert np.array_equal(masks[0, 0].numpy(), expected)
        assert ((pictures[0, 0].numpy() > 100) == expected).mean() > 0.97


def test_grey_pictures_become_rgb(tmp_path: Path) -> None:
    pair(tmp_path, "b")
    picture, _ = pair(tmp_path, "a")
    grey = np.arange(32 * 32).reshape(32, 32)
    Image.fromarray((grey * 64).astype(np.uint16)).save(picture)
    channels = one(tmp_path)[0]
    assert channels.shape == (3, 32, 32)
    for channel in channels:
        assert np.array_equal(channel.numpy(), grey * 64 >> 8)


def test_resized_masks_stay_aligned_with_pictures_and_keep_thin_cracks(tmp_path: Path) -> None:
    thin = np.random.default_rng(0).random((256, 256)) < 0.05
    pair(tmp_path, "a", mask=thin)
    pair(tmp_path, "b", mask=blob(height=256, width=256))
    data = load_pairs(tmp_path, config(image_size=64))
    by_name = {names(part)[0]: everything(part) for part in (data.train, data.val)}
    assert by_name["a"][1].float().mean().item() == pytest.approx(thin.mean(), rel=0.15)
    picture, mask = by_name["b"]
    assert np.array_equal(mask[0, 0].numpy(), blob(height=64, width=64))
    assert torch.equal(picture[:, 0] > 100, mask[:, 0] > 0)


def test_the_pixels_of_each_class_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        mask = np.zeros((32, 32), dtype=bool)
        mask[:number] = True
        pair(tmp_path / "train", f"{number}", mask=mask)
    pair(tmp_path / "val", "0", mask=np.ones((32, 32), dtype=bool))
    train = load_pairs(tmp_path, config()).train
    positive = 32 * sum(range(10))
    assert train.count_classes(workers=0) == [10 * 32**2 - positive, positive]
    monkeypatch.setattr(module, "MAX_MEASURED", 5)
    assert train.count_classes(workers=2)[1] == 32 * sum((0, 2, 4, 6, 8))


def _missing_mask(root: Path) -> Path:
    (root / "masks" / "wall-3.png").unlink()
    return root / "images" / "wall-3.png"


def _surplus_mask(root: Path) -> Path:
    (root / "images" / "wall-3.png").unlink()
    return root / "masks" / "wall-3.png"


def _same_stem(root: Path) -> Path:
    shutil.copy(root / "masks" / "wall-3.png", root / "masks" / "wall-3.tif")
    return root / "masks" / "wall-3.tif"


def _empty(root: Path) -> Path:
    for file in (root / "masks").iterdir():
        file.unlink()
    return root / "masks"


def _no_folder(root: Path) -> Path:
    shutil.rmtree(root / "masks")
    return root / "masks"


def _single(root: Path) -> Path:
    shutil.rmtree(root)
    walls(root, count=1)
    return root


def _no_picture(root: Path) -> Path:
    (root / "images" / "wall-3.png").write_text("no picture")
    return root / "images" / "wall-3.png"


def _no_mask(root: Path) -> Path:
    (root / "masks" / "wall-3.png").write_text("no mask")
    return root / "masks" / "wall-3.png"


def _folder(root: Path) -> Path:
    (root / "images" / "more").mkdir()
    return root / "images" / "more"


def _dangling(root: Path) -> Path:
    (root / "masks" / "wall-3.png").unlink()
    (root / "masks" / "wall-3.png").symlink_to(root / "nowhere.png")
    return root / "masks" / "wall-3.png"


def _other_size(root: Path) -> Path:
    mask = root / "masks" / "wall-3.png"
    Image.open(mask).resize((31, 32)).save(mask)
    return root / "images" / "wall-3.png"


def _no_source(root: Path) -> Path:
    shutil.rmtree(root)
    return root


def _no_folder_at_all(root: Path) -> Path:
    shutil.rmtree(root)
    root.write_text("no folder")
    return root


@pytest.mark.parametrize(
    "harm",
    [
        _no_source,
        _no_folder_at_all,
        _missing_mask,
        _surplus_mask,
        _same_stem,
        _empty,
        _no_folder,
        _single,
        _no_picture,
        _no_mask,
        _folder,
        _dangling,
        _other_size,
    ],
)
def test_a_bad_source_is_named(tmp_path: Path, harm: Callable[[Path], Path]) -> None:
    path = harm(walls(tmp_path / "source"))
    with pytest.raises(DataError) as caught:
        load_pairs(tmp_path / "source", config())
    assert caught.value.message.startswith(str(path))


@pytest.mark.parametrize("split", ["train", "val"])
def test_both_splits_of_a_source_are_checked(tmp_path: Path, split: str) -> None:
    for part in ("train", "val"):
        walls(tmp_path / part, count=4)
    path = _missing_mask(tmp_path / split)
    with pytest.raises(DataError, match=str(path)):
        load_pairs(tmp_path, config())


def test_pictures_and_masks_of_different_sizes_are_both_named(tmp_path: Path, approved: Approved) -> None:
    path = _other_size(walls(tmp_path))
    mask = tmp_path / "masks" / path.name
    with pytest.raises(DataError) as raised:
        load_pairs(tmp_path, config())
    assert str(raised.value) == approved("message", path=path, mask=mask)


def _torn(file: Path) -> None:
    Image.effect_noise((32, 32), 50).save(file)
    file.write_bytes(file.read_bytes()[:-300])


@pytest.mark.parametrize("folder", ["images", "masks"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_file_is_named_when_it_is_read(
    tmp_path: Path, folder: str, workers: int, approved: Approved
) -> None:
    data: PairData = load_pairs(walls(tmp_path), config())
    file = tmp_path / folder / f"{names(data.train)[4]}.png"
    _torn(file)
    with pytest.raises(DataError) as caught:
        everything(data.train, workers=workers)
    assert caught.value.message == approved("message", file=file)
    if folder == "masks":
        with pytest.raises(DataError, match=str(file)):
            data.train.count_classes(workers=workers)


def test_only_some_headers_of_many_files_are_read_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(module, "MAX_CHECKED", 4)
    walls(tmp_path / "train")
    walls(tmp_path / "val", count=1)
    (tmp_path / "train" / "images" / "wall-3.png").write_text("no picture")
    train = load_pairs(tmp_path, config()).train
    with pytest.raises(DataError) as raised:
        everything(train)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_real_photographs_of_cracks(tmp_path: Path) -> None:
    archive = SHARED / "cracks-masonry.zip"
    if not archive.exists():
        pytest.skip(f"{archive.name} is not in ../shared/data beside the checkout")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path)
    data = load_pairs(tmp_path, config(image_size=224))
    assert (len(data.train), len(data.val)) == (204, 36)
    ((pictures, masks),) = data.val.batches([torch.tensor([0, 17, 35])], device=CPU, workers=0)
    assert pictures.shape == (3, 3, 224, 224)
    assert pictures.float().std() > 20
    for picture, mask in zip(pictures.float(), masks, strict=True):
        assert 0.003 < mask.float().mean() < 0.3
        cracks, wall = picture.mean(0)[mask[0] > 0], picture.mean(0)[mask[0] == 0]
        assert cracks.mean() < wall.mean()  # cracks are darker than what they run through


def photographs(root: Path, *, orientation: int = 1) -> Path:
    """Writes large pairs: a JPEG that is bright where its mask is positive. Both are stored turned, if at all."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    for stem in ("a", "b"):
        picture, mask = pair(root, stem, mask=blob(height=400, width=480))
        for file, target in ((picture, picture.with_suffix(".jpg")), (mask, mask.with_suffix(".tmp.png"))):
            Image.open(file).save(target, exif=exif, quality=95)
            file.unlink()
        mask.with_suffix(".tmp.png").rename(mask)
    return root


@pytest.mark.parametrize("resize", ["squash", "crop"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_picture_that_is_decoded_small_lies_on_its_mask(tmp_path: Path, resize: str, orientation: int) -> None:
    picture, mask = one(photographs(tmp_path, orientation=orientation), resize=resize)
    assert mask.any()
    inside = picture[0] > 100
    assert (inside != (mask[0] > 0)).float().mean() < 0.02, "only the edge may differ"


def test_pairs_are_the_same_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "SETTLED_NS", 0)
    root = walls(tmp_path / "data")
    before = everything(load_pairs(root, config()).train)
    monkeypatch.setattr(module, "read_mask", None)  # nothing is decoded any more
    for found, wanted in zip(everything(load_pairs(root, config()).train), before, strict=True):
        assert torch.equal(found, wanted)
    with pytest.raises(TypeError, match="not callable"):
        everything(load_pairs(root, config(mask_threshold=0.4)).train)
