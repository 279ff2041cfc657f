"""Pictures of every kind become the inputs that training makes of them."""

from pathlib import Path
import struct
from typing import Any
import zlib

import numpy as np
from PIL import Image
import pytest
import torch

from tests.torchyard.models.test_loading import digits, walls
import torchyard
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import REGISTRY
from torchyard.models import decoding, unet
from torchyard.models.arrays import fitted
from torchyard.models.pictures import PictureModel
from trainer.recipes import make_task
from trainer.task import Task

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> PictureModel[Any]:
    """A model of grey pictures of 8×8."""
    return _loaded(tmp_path_factory.mktemp("grey"), digits())


@pytest.fixture(scope="module")
def coloured(tmp_path_factory: pytest.TempPathFactory) -> PictureModel[Any]:
    """A model of masks of coloured pictures of 32×32."""
    return _loaded(tmp_path_factory.mktemp("coloured"), walls())


def _loaded(folder: Path, state: dict[str, Any]) -> PictureModel[Any]:
    torch.save(state, folder / "best.pt")
    model = torchyard.load(folder / "best.pt", device="cpu")
    assert isinstance(model, PictureModel)
    return model


def saved(folder: Path, image: Image.Image, name: str = "a.png", **options: Any) -> Path:
    image.save(folder / name, **options)
    return folder / name


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "I;16", "1", "CMYK"])
@pytest.mark.parametrize("size", [(8, 8), (40, 20)])
def test_a_file_goes_the_way_of_files_in_training(
    tmp_path: Path, grey: PictureModel[Any], coloured: PictureModel[Any], mode: str, size: tuple[int, int]
) -> None:
    image = Image.fromarray(GREY).resize(size).convert(mode) if mode != "I;16" else Image.new("I;16", size, 30_000)
    path = saved(tmp_path, image, "a.tif" if mode == "CMYK" else "a.png")
    for model, channels, side in ((grey, 1, 8), (coloured, 3, 32)):
        expected = decoding.decode(path, channels=channels, size=(side, side), resize=model.form.resize).float() / 255
        assert torch.allclose(model.prepare([path])[0], (expected - 0.5) / 0.5, atol=1e-6)
        with Image.open(path) as opened:
            assert torch.equal(model.prepare([opened]), model.prepare([path]))


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (1, 8, 8), (8, 8, 3), (3, 8, 8), (20, 30)])
def test_an_array_goes_the_way_of_arrays_in_training(
    grey: PictureModel[Any], coloured: PictureModel[Any], shape: tuple[int, ...]
) -> None:
    values = np.broadcast_to(GREY.repeat(4, 0).repeat(4, 1)[: shape[0], : shape[1]], shape) if len(shape) == 2 else None
    whole = np.full(shape, 51, np.uint8) if values is None else np.ascontiguousarray(values)
    for model, side in ((grey, 8), (coloured, 32)):
        found = model.prepare([whole])
        assert found.shape[-2:] == (side, side)
        floats = model.prepare([whole.astype(np.float32) / 255])
        assert torch.allclose(found, floats, atol=0.01)
        assert torch.equal(found, model.prepare([torch.from_numpy(whole)]))
        assert torch.equal(found, model.prepare([whole[::-1].copy()[::-1]]))  # of negative strides
        assert torch.equal(floats, model.prepare([whole.astype(">f4") / np.float32(255)]))
        mixed = model.prepare([whole, whole.astype(np.float64) / 255])
        assert torch.allclose(mixed[0], mixed[1], atol=0.01)
        if len(shape) == 2:
            part = fitted(torch.from_numpy(whole)[None, None], (side, side), resize=model.form.resize)
            expected = part.float() / 255
            assert torch.allclose(found, ((expected - 0.5) / 0.5).expand_as(found), atol=1e-6)


def test_colours_become_grey_as_in_files(tmp_path: Path, grey: PictureModel[Any]) -> None:
    colours = np.random.default_rng(0).integers(256, size=(8, 8, 3)).astype(np.uint8)
    path = saved(tmp_path, Image.fromarray(colours))
    assert torch.allclose(grey.prepare([colours]), grey.prepare([path]), atol=0.01)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 8, 4), np.uint8), r"shape \(8, 8, 4\)"),
        (np.zeros((2, 8), np.int64), "int64"),
        (np.zeros((0, 8), np.uint8), "empty"),
        (np.zeros(8, np.uint8), r"shape \(8,\)"),
        (np.full((8, 8), 200.0), "values from 200 to 200"),
        (np.full((8, 8), np.nan), "NaN"),
        (np.full((8, 8), np.inf), "infinite"),
        (np.array([["a"]]), "<U1"),
        (None, "object"),
        (torch.zeros(8, 8, dtype=torch.int32), "int32"),
    ],
)
def test_an_array_that_is_no_picture_is_refused(grey: PictureModel[Any], array: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        grey.predict(array)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.arange(64, dtype=np.uint16), "has 16 bits a value, and the largest one is 63, so it is black: save it"),
        (np.arange(64, dtype=np.int32), "its values have 32 bits, and nobody knows which one is white"),
        (np.arange(64, dtype=np.float32), "its floats are 0 to 63, and those of a picture 0…1: scale them"),
    ],
)
def test_a_picture_of_which_nobody_knows_what_is_white_is_refused(
    tmp_path: Path, grey: PictureModel[Any], values: Any, message: str
) -> None:
    path = saved(tmp_path, Image.fromarray(values.reshape(8, 8)), "a.tif")
    for source in (path, Image.fromarray(values.reshape(8, 8))):
        with pytest.raises(DataError, match=message):
            grey.predict(source)


def test_a_cut_picture_has_the_first_class_where_it_is_cut(tmp_path: Path) -> None:
    state = walls()
    state["model"]["head.weight"][:], state["model"]["head.bias"][:] = 0, 1  # every pixel is the second class
    state["config"]["data"]["resize"] = "crop"
    model = _loaded(tmp_path, state)
    path = saved(tmp_path, Image.fromarray(GREY).resize((60, 30)))
    for source in (path, np.asarray(Image.open(path))):
        mask = model.predict(source).mask
        assert mask.shape == (30, 60)
        assert mask[:, 15:45].all() and not mask[:, :15].any() and not mask[:, 45:].any()


def test_of_several_classes_the_most_probable_one_is_taken(tmp_path: Path) -> None:
    state = {**walls(), "classes": ["background", "wall", "sky"], "outputs": 3}
    state["model"] = unet.build("unet_small", outputs=3).state_dict()
    model = _loaded(tmp_path, state)
    picture = np.random.default_rng(0).integers(256, size=(32, 32, 3)).astype(np.uint8)
    found = model.predict(picture)
    assert np.array_equal(found.mask, model.logits(model.prepare([picture]))[0].argmax(0).numpy())
    assert sum(found.share.values()) == pytest.approx(1)
    larger = model.predict(picture.repeat(3, 0).repeat(2, 1))
    assert larger.mask.shape == (96, 64)
    found.save_mask(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as mask:
        assert mask.mode == "P" and np.array_equal(np.asarray(mask), found.mask)
        assert np.array_equal(np.asarray(mask.convert("RGB")), np.array(found.palette)[found.mask])


def test_a_turned_jpeg_is_upright(tmp_path: Path, coloured: PictureModel[Any]) -> None:
    exif = Image.Exif()
    exif[decoding.ORIENTATION] = 6
    values = np.zeros((20, 400), np.uint8)
    values[:, :200] = 255
    for name in ("a.jpg", "a.png"):
        path = saved(tmp_path, Image.fromarray(values), name, exif=exif)
        assert coloured.predict(path).mask.shape == (400, 20)
        upper, lower = coloured.prepare([path])[0, 0].mean(dim=1)[[4, 28]]
        assert upper > 0.9 and lower < -0.9


def bomb(path: Path) -> Path:
    """Writes a small PNG that says it has 60,000 × 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(10))))
    return path


def test_a_file_that_is_no_picture_is_named(
    tmp_path: Path, grey: PictureModel[Any], coloured: PictureModel[Any]
) -> None:
    whole = saved(tmp_path, Image.fromarray(GREY).resize((200, 200)), "whole.jpg").read_bytes()
    (tmp_path / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.png").write_bytes(b"")
    bomb(tmp_path / "bomb.png")
    for name in ("torn.jpg", "text.png", "empty.png", "bomb.png", "absent.png"):
        for model in (grey, coloured):
            with pytest.raises(DataError, match=f"{name} cannot be read as a picture") as caught:
                model.predict([tmp_path / "whole.jpg", tmp_path / name])
            assert "\n" not in caught.value.message and "Errno" not in caught.value.message


def test_a_folder_is_its_pictures_in_order(tmp_path: Path, grey: PictureModel[Any]) -> None:
    with pytest.raises(DataError, match="has no picture"):
        grey.predict(tmp_path)
    for folder in ("b", "__MACOSX"):
        (tmp_path / folder).mkdir()
    for name in ("b/1.png", "c.JPG", "a.png", ".hidden.png", "__MACOSX/1.png"):
        saved(tmp_path, Image.fromarray(GREY), name)
    (tmp_path / "notes.txt").write_text("no picture")
    found = [prediction.source for prediction in grey.predict(str(tmp_path))]
    assert found == [str(tmp_path / name) for name in ("a.png", "b/1.png", "c.JPG")]
    assert len(grey.predict([tmp_path, tmp_path / "a.png"])) == 4


def large(path: Path, number: int) -> None:
    """Writes a picture that is decoded smaller if it is a JPEG, and lies on its side."""
    values = np.random.default_rng(number).integers(256, size=(12, 16, 3)).astype(np.uint8)
    exif = Image.Exif()
    exif[decoding.ORIENTATION] = 6
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).resize((643, 481)).save(path, exif=exif)


@pytest.mark.parametrize("resize", ["crop", pytest.param("squash", marks=pytest.mark.thorough)])
def test_files_are_prepared_as_for_the_evaluation_of_a_classifier(tmp_path: Path, resize: str) -> None:
    files = [
        tmp_path / "data" / label / f"{number}.{end}" for label in "ab" for number, end in enumerate(("jpg", "png"))
    ]
    for number, file in enumerate(files):
        large(file, number)
    data = {
        "source": (tmp_path / "data").as_uri(),
        "image_size": 32,
        "resize": resize,
        "val_fraction": 0.5,
        "workers": 0,
    }
    task = _task("image-classification", {"data": data})
    model = _loaded(tmp_path, _state("image-classification", task))
    assert _pixels_of(task) == sorted(model.read(file).pixels.tolist() for file in files)


@pytest.mark.parametrize("resize", ["crop", pytest.param("squash", marks=pytest.mark.thorough)])
def test_files_are_prepared_as_for_the_evaluation_of_masks(tmp_path: Path, resize: str) -> None:
    files = [tmp_path / "data" / "images" / f"{number}.{end}" for number, end in enumerate(("jpg", "png"))]
    for number, file in enumerate(files):
        large(file, number)
        (tmp_path / "data" / "masks").mkdir(exist_ok=True)
        Image.fromarray(np.tri(643, 481, dtype=np.uint8) * 255).save(tmp_path / "data" / "masks" / f"{number}.png")
    data = {
        "source": (tmp_path / "data").as_uri(),
        "image_size": 32,
        "resize": resize,
        "val_fraction": 0.5,
        "augment": [],
    }
    task = _task("segmentation", {"data": {**data, "workers": 0}})
    model = _loaded(tmp_path, _state("segmentation", task))
    assert _pixels_of(task) == sorted(model.read(file).pixels.tolist() for file in files)


def _pixels_of(task: Any) -> list[Any]:
    """Returns the pixels of all pictures of a task, sorted."""
    parts = (task.data.train, task.data.val)
    batches = (part.batches([torch.arange(len(part))], device=torch.device("cpu"), workers=0) for part in parts)
    return sorted(picture.tolist() for ((pictures, _),) in batches for picture in pictures)


def _task(trainer: str, raw: dict[str, Any]) -> Task:
    config = REGISTRY[trainer].config.model_validate(raw)
    return make_task(config, source=raw["data"]["source"], device=torch.device("cpu"))


def _state(trainer: str, task: Any) -> dict[str, Any]:
    config = task.config.model_dump(mode="json")
    return {"recipe": trainer, "config": config, "model": task.model.state_dict(), **task.metadata}
