"""Pictures in shards: the batches of the folder that they were made of, and errors that name the file and its tar."""

import io
from pathlib import Path

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.trainer.data.tars import tar
from tests.trainer.data.test_pairs import config as pair_config
from tests.trainer.data.test_pairs import everything as every_pair
from tests.trainer.data.test_pairs import names
from tests.trainer.data.test_pictures import config, everything, folders
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load, same
from tests.trainer.test_batching import train
from tests.trainer.walls import walls
from torchyard.cli.sharding import find_files, write_shards
from torchyard.contract.bundles.shards import INDEX
from torchyard.contract.errors import DataError
from trainer.data.folders import load_folders
from trainer.data.pairs import load_pairs


def sharded(folder: Path, *, most: int = 2048) -> Path:
    """Writes a folder into shards beside it."""
    out = folder.parent / f"{folder.name}-shards"
    write_shards(find_files(folder), out, most=most)
    return out


def encoded(value: int, *, kind: str = "PNG", noise: int = 0) -> bytes:
    file = io.BytesIO()
    pixels = np.full((8, 8), value, dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(file, kind, **({"icc_profile": bytes(noise)} if noise else {}))
    return file.getvalue()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("split", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_shards_give_the_batches_of_the_folder(tmp_path: Path, workers: int, split: bool) -> None:
    folder = folders(tmp_path / "data") / ("" if split else "train")
    shards = sharded(folder)
    assert len(list(shards.glob("*.tar"))) > 1
    files, packed = (load_folders(root, config(val_fraction=0.4)) for root in (folder, shards))
    assert (packed.classes, packed.channels, packed.split_hash) == (files.classes, files.channels, files.split_hash)
    for ours, theirs in ((packed.train, files.train), (packed.val, files.val)):
        pairs = zip(everything(ours, workers=workers), everything(theirs, workers=workers), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    assert packed.identity.files == tuple(sorted(path.name for path in shards.glob("*.tar")))


def test_shards_give_the_pairs_of_the_folder(tmp_path: Path) -> None:
    folder = walls(tmp_path / "data")
    files, packed = (load_pairs(root, pair_config()) for root in (folder, sharded(folder)))
    assert packed.split_hash == files.split_hash
    for ours, theirs in ((packed.train, files.train), (packed.val, files.val)):
        assert names(ours) == names(theirs)
        pairs = zip(every_pair(ours), every_pair(theirs), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    assert packed.train.count_classes(workers=0) == files.train.count_classes(workers=0)


def test_tars_of_webdataset_are_read(tmp_path: Path) -> None:
    for split, values in (("train", (10, 20, 30, 40)), ("val", (50, 60))):
        files = {
            f"{value}.{kind}": content
            for value in values
            for kind, content in (("png", encoded(value)), ("cls", b"%d" % (value % 20)))
        }
        tar(tmp_path / f"{split}-0.tar", files)
    data = load_folders(tmp_path, config())
    assert data.classes == ["0", "10"]
    for part, values in ((data.train, [20, 40, 10, 30]), (data.val, [60, 50])):
        pictures, labels = everything(part)
        assert pictures[:, 0, 0, 0].tolist() == values
        assert labels.tolist() == [value // 10 % 2 for value in values]


def test_a_header_may_be_long(tmp_path: Path) -> None:
    large = encoded(7, kind="JPEG", noise=1 << 18)
    tar(tmp_path / "a.tar", {f"{name}/{number}.jpg": large for name in ("cat", "dog") for number in range(2)})
    assert load_folders(tmp_path, config()).height == 8


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_is_no_picture_is_named_with_its_tar(tmp_path: Path, workers: int) -> None:
    folder = folders(tmp_path / "data")
    whole = (folder / "train" / "cat" / "1.png").read_bytes()
    (folder / "train" / "cat" / "1.png").write_bytes(whole[:45])
    data = load_folders(sharded(folder), config())
    with pytest.raises(DataError, match=r"train/cat/1\.png in .*shard-0000[0-9]\.tar cannot be read as a picture"):
        everything(data.train, workers=workers)
    (folder / "train" / "cat" / "1.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"train/cat/1\.png in .*\.tar cannot be read as a picture"):
        load_folders(sharded(folder.rename(tmp_path / "other")), config())


def test_a_mask_that_is_none_is_named_with_its_tar(tmp_path: Path) -> None:
    folder = walls(tmp_path / "data")
    mask = next((folder / "masks").iterdir())
    mask.write_bytes(b"not a picture")
    with pytest.raises(DataError, match=rf"masks/{mask.name} in .*\.tar cannot be read as a picture"):
        load_pairs(sharded(folder), pair_config())


@pytest.mark.parametrize("label", ["café".encode("cp1252"), b"", "é".encode() * 101])
def test_the_name_of_a_class_that_is_not_utf8_or_too_long_is_refused(
    tmp_path: Path, label: bytes, approved: Approved
) -> None:
    shards = tmp_path / "shards"
    picture = encoded(1)
    tar(shards / "a.tar", {"1.png": picture, "1.cls": label, "2.png": picture, "2.cls": b"tea"})
    with pytest.raises(DataError) as raised:
        load_folders(shards, config())
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def test_an_index_with_the_offset_of_another_file_is_refused_when_it_is_read(
    tmp_path: Path, approved: Approved
) -> None:
    shards = sharded(folders(tmp_path / "data"), most=1 << 20)
    lines = (shards / INDEX).read_text().splitlines(keepends=True)
    (shards / INDEX).write_text("".join([*lines[:2], lines[2].replace("1.png", "7.png"), *lines[3:]]))
    with pytest.raises(DataError) as raised:
        load_folders(shards, config())
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_folder_beside_a_tar_is_read_as_before(tmp_path: Path) -> None:
    folder = folders(tmp_path / "data")
    tar(folder / "copy.tar", {"cat/1.jpg": b""})
    assert len(load_folders(folder, config()).train) == 6


@pytest.mark.thorough
def test_a_run_on_shards_ends_bit_equal_to_one_on_files_and_resumes_inside_an_epoch(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    for number in range(60):
        path = tmp_path / "data" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    shards = sharded(tmp_path / "data")

    def launch(name: str, source: Path, *, stop_at: int | None = None, resume_from: Path | None = None) -> Path:
        training = {"epochs": 1, "per_device_batch_size": 4, "deterministic": True}
        data = {"source": source.as_uri(), "augment": ["hflip"], "workers": 1}
        run = job(tmp_path / f"run-{name}", {"training": training, "data": data})
        results(on_ranks(2, train, stop_at, env=environment(run, data=str(source), resume_from=resume_from)))
        return max(run.checkpoints.iterdir(), key=lambda path: load(path)["step"])

    files, packed = (load(launch(source.name, source)) for source in (tmp_path / "data", shards))
    differ = {"config", "data_hash", "data_listing", "data_files"}
    assert same(*({key: value for key, value in state.items() if key not in differ} for state in (files, packed)))
    assert files["data_hash"] != packed["data_hash"]
    stopped = launch("stopped", shards, stop_at=3)
    assert 0 < load(stopped)["step"] < packed["step"]
    assert same(load(launch("resumed", shards, resume_from=stopped)), packed)
