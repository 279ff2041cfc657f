from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
import pytest
import torch
from torchvision import transforms

from tests.approved import Approved
from torchyard.contract.errors import DataError
from torchyard.models.decoding import decode, fit, header, load, pixels


def test_a_picture_of_16_bits_keeps_the_upper_eight(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.array([[0, 256, 65535]], dtype=np.uint16)).save(path)
    assert header(path) == ((3, 1), True, True)
    assert decode(path, channels=1).tolist() == [[[0, 1, 255]]]


def test_floats_of_0_to_1_become_0_to_255(tmp_path: Path) -> None:
    path = tmp_path / "floats.tif"
    Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32)).save(path)
    assert header(path) == ((3, 1), True, True)
    assert decode(path, channels=1).tolist() == [[[0, 128, 255]]]


def test_a_rotated_photograph_is_turned_upright(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(path, exif=exif)
    assert header(path) == ((4, 8), False, False)
    assert decode(path, channels=3).shape == (3, 8, 4)


def test_a_palette_with_transparent_colours_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "palette.png"
    Image.new("RGB", (4, 4), (200, 10, 10)).quantize().save(path, transparency=bytes([128]))
    assert torch.equal(decode(path, channels=3)[:, 0, 0], torch.tensor([200, 10, 10], dtype=torch.uint8))


def test_a_wanted_size_is_width_and_height(tmp_path: Path) -> None:
    path = tmp_path / "grey.png"
    Image.new("L", (10, 6), 77).save(path)
    pixels = decode(path, channels=1, size=(5, 4))
    assert pixels.shape == (1, 4, 5)
    assert pixels.unique().tolist() == [77]


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n torn"])
def test_a_file_that_is_not_a_picture_is_named(tmp_path: Path, content: bytes, approved: Approved) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    for read in (header, partial(decode, channels=3)):
        with pytest.raises(DataError) as raised:
            read(path)
        assert str(raised.value) == approved("message", tmp_path=tmp_path)


def _photograph(path: Path, width: int, height: int, *, orientation: int = 1) -> Path:
    """A smooth picture with a bright corner, so that every turn of it differs."""
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = np.stack([rows, columns, np.sin(9 * rows) * np.cos(7 * columns) / 2 + 0.5], axis=2)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray((waves * 255).astype(np.uint8)).save(path, exif=exif, quality=95)
    return path


def test_a_large_jpeg_is_decoded_at_no_less_than_twice_the_wanted_size(tmp_path: Path) -> None:
    path = _photograph(tmp_path / "large.jpg", 800, 600)
    assert load(path, channels=3, wanted=(100, 75)).size == (200, 150)
    assert load(path, channels=3, wanted=(101, 75)).size == (400, 300)
    assert load(path, channels=3, wanted=(200, 150)).size == (400, 300)
    assert load(path, channels=3, wanted=(201, 150)).size == (800, 600)
    assert load(path, channels=3).size == (800, 600)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_that_is_decoded_small_is_turned_as_the_large_one(tmp_path: Path, orientation: int) -> None:
    path = _photograph(tmp_path / "large.jpg", 800, 400, orientation=orientation)
    size = (100, 200) if orientation >= 5 else (200, 100)
    small = pixels(fit(load(path, channels=3, wanted=(50, 50)), size)).float()
    large = pixels(fit(load(path, channels=3), size)).float()
    assert (small - large).abs().mean() < 1
    assert load(path, channels=3, wanted=size).size == (size[0] * 2, size[1] * 2)


@pytest.mark.parametrize(("width", "height"), [(301, 200), (200, 333), (224, 224), (50, 40), (1, 400)])
@pytest.mark.parametrize("crop_fraction", [1.0, 0.875, 224 / 232])
def test_a_crop_is_that_of_torchvision(tmp_path: Path, width: int, height: int, crop_fraction: float) -> None:
    image = load(_photograph(tmp_path / "photo.png", width, height), channels=3)
    protocol = transforms.Compose([transforms.Resize(round(224 / crop_fraction)), transforms.CenterCrop(224)])
    wanted = pixels(protocol(image))
    found = pixels(fit(image, (224, 224), resize="crop", crop_fraction=crop_fraction))
    assert found.shape == wanted.shape
    difference = (found.float() - wanted.float()).abs()
    assert difference.max() <= 2 and difference.mean() < 0.05  # of 255: both round twice


def test_a_crop_of_a_very_long_picture_takes_little_memory() -> None:
    assert fit(Image.new("L", (1, 60_000)), (64, 32), resize="crop").size == (64, 32)


def test_an_open_file_is_read_and_a_bad_one_has_no_address_in_its_message(tmp_path: Path) -> None:
    content = BytesIO(_photograph(tmp_path / "photo.jpg", 64, 48).read_bytes())
    assert decode(content, channels=1, size=(8, 8), resize="crop").shape == (1, 8, 8)
    with pytest.raises(DataError, match=r"^the file cannot be read as a picture"):
        decode(BytesIO(b"no picture"), channels=3)


def test_a_picture_that_ends_too_early_is_an_error_at_every_size(tmp_path: Path, approved: Approved) -> None:
    path = _photograph(tmp_path / "torn.jpg", 800, 600)
    path.write_bytes(path.read_bytes()[:4000])
    for size in (None, (50, 50)):
        with pytest.raises(DataError) as raised:
            decode(path, channels=3, size=size)
        assert str(raised.value) == approved("message", tmp_path=tmp_path)
