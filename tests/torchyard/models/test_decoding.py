from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
import pytest
import torch

from torchyard.contract.errors import DataError
from torchyard.models.decoding import decode, header


def test_a_picture_of_16_bits_keeps_the_upper_eight(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.array([[0, 256, 65535]], dtype=np.uint16)).save(path)
    assert header(path) == ((3, 1), True)
    assert decode(path, channels=1).tolist() == [[[0, 1, 255]]]


def test_a_rotated_photograph_is_turned_upright(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(path, exif=exif)
    assert header(path) == ((4, 8), False)
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
def test_a_file_that_is_not_a_picture_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    for read in (header, partial(decode, channels=3)):
        with pytest.raises(DataError, match=r"bad\.png cannot be read as a picture"):
            read(path)
