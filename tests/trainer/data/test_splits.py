"""What sources are split by themselves, and what in their folders is no part of the data."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image
import pytest

from tests.approved import Approved
from tests.trainer.data.tars import tar
from tests.trainer.data.test_brightness import Listening
from tests.trainer.data.test_pairs import config as pair_config
from tests.trainer.data.test_pictures import config, everything
from tests.trainer.data.test_sharded_pictures import sharded
from tests.trainer.data.test_texts import config as text_config
from tests.trainer.walls import walls
from torchyard.cli.sharding import find_files
from torchyard.contract.errors import DataError
from trainer.data.examples import source_files
from trainer.data.folders import load_folders
from trainer.data.pairs import load_pairs
from trainer.data.texts import load_texts

LEFT_BY_PROGRAMS = ("Thumbs.db", "desktop.ini", ".DS_Store", "__MACOSX/._1.png", "@eaDir/1.png")


def pictures(root: Path, folders: Iterable[str]) -> Path:
    """Writes two pictures into each folder."""
    for position, folder in enumerate(folders):
        for number in range(2):
            path = root / folder / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * position + number).save(path)
    return root


def litter(*folders: Path) -> None:
    """Writes what desktops and archives leave into each folder."""
    for folder in folders:
        for name in LEFT_BY_PROGRAMS:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"no data")


@pytest.mark.parametrize(
    "names", [("train", "val"), ("train", "valid"), ("Train", "Validation"), ("train", "val", "test")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_folders_of_a_split_are_no_classes(tmp_path: Path, names: tuple[str, ...], packed: bool) -> None:
    root = pictures(tmp_path / "data", [f"{name}/{label}" for name in names for label in ("cat", "dog")])
    scan = Listening()
    data = load_folders(sharded(root) if packed else root, config(), scan=scan)
    assert (data.classes, len(data.train), len(data.val)) == (["cat", "dog"], 4, 4)
    assert everything(data.val)[0][:, 0, 0, 0].tolist() == [40, 41, 60, 61]
    assert scan.told == ([f"{root / 'test'} is left out: train and val are read"] if names[2:] and not packed else [])


@pytest.mark.parametrize("classes", [("train", "test"), ("train/cat", "train/dog", "test/cat", "test/dog")])
@pytest.mark.parametrize("packed", [False, True])
def test_train_and_test_are_no_classes(
    tmp_path: Path, classes: tuple[str, ...], packed: bool, approved: Approved
) -> None:
    root = pictures(tmp_path / "data", classes)
    with pytest.raises(DataError) as caught:
        load_folders(sharded(root) if packed else root, config())
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


def test_tars_named_train_and_test_are_not_mixed(tmp_path: Path) -> None:
    for name in ("train", "test"):
        tar(tmp_path / f"{name}-0.tar", {f"{label}/1.png": b"" for label in ("cat", "dog")})
    with pytest.raises(DataError, match="has train and test, which are no classes"):
        load_folders(tmp_path, config())


def test_a_class_may_be_named_train(tmp_path: Path) -> None:
    assert load_folders(pictures(tmp_path, ("car", "train")), config()).classes == ["car", "train"]


def test_two_splits_for_validation_are_refused(tmp_path: Path) -> None:
    root = pictures(tmp_path, [f"{name}/{label}" for name in ("train", "val", "valid") for label in ("cat", "dog")])
    with pytest.raises(DataError, match="has val and valid: one is for validation"):
        load_folders(root, config())


def test_pairs_and_texts_have_the_same_names_of_splits(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        walls(tmp_path / "walls" / name)
        for label in ("neg", "pos"):
            path = tmp_path / "texts" / name / f"{label}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{label} {name}")
        (tmp_path / f"{name}.jsonl").write_text("{}")
    pairs = load_pairs(tmp_path / "walls", pair_config())
    assert len(pairs.train) == len(pairs.val) == 8
    assert load_texts(tmp_path / "texts", text_config()).val.texts == ["neg valid", "pos valid"]
    assert source_files(tmp_path) == (tmp_path / "train.jsonl", tmp_path / "valid.jsonl")
    (tmp_path / "texts" / "valid").rename(tmp_path / "texts" / "test")
    (tmp_path / "walls" / "valid").rename(tmp_path / "walls" / "test")
    with pytest.raises(DataError, match="has train and test, which are no classes"):
        load_texts(tmp_path / "texts", text_config())
    with pytest.raises(DataError, match="has train and test, which are no classes"):
        load_pairs(tmp_path / "walls", pair_config())


def test_what_programs_leave_in_folders_is_no_data(tmp_path: Path) -> None:
    root = pictures(tmp_path / "data", ("cat", "dog"))
    litter(root, root / "cat")
    found = load_folders(root, config())
    assert (found.classes, len(found.train) + len(found.val)) == (["cat", "dog"], 4)
    assert set(find_files(root).files) == {f"{label}/{number}.png" for label in ("cat", "dog") for number in range(2)}
    files = {file.relative_to(root).as_posix(): file.read_bytes() for file in root.glob("[cd]*/?.png")}
    tar(tmp_path / "tars" / "a.tar", {**files, "__MACOSX/cat/1.png": b"", "cat/Thumbs.db": b""})
    packed = load_folders(tmp_path / "tars", config())
    assert (packed.classes, len(packed.train) + len(packed.val)) == (["cat", "dog"], 4)
    pairs = walls(tmp_path / "walls")
    litter(pairs / "images", pairs / "masks")
    assert len(load_pairs(pairs, pair_config()).train) == 7
