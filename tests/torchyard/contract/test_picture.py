"""What the header of a picture says, as a stranger may have written it."""

from io import BytesIO
import struct
from typing import Any

from PIL import Image
import pytest

from tests.approved import Approved
from torchyard.contract.media import PICTURE_BYTES
from torchyard.contract.picture import Picture, TooLarge, picture_of


def encoded(kind: str, size: tuple[int, int] = (31, 17), **options: Any) -> bytes:
    file = BytesIO()
    Image.new("RGB", size, "red").save(file, format=kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "comment": b"x" * 60_000}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0" + b"x" * 10}),
    ],
)
def test_a_picture_has_the_size_that_it_is_decoded_to(kind: str, options: dict[str, Any]) -> None:
    assert picture_of(encoded(kind, **options)) == Picture(f"image/{kind.lower()}", 31, 17)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"<!doctype html><script>alert(1)</script>" + encoded("PNG"),
        b"GIF89a" + b"\0" * 100,
        b"\xff\xd8\xff\xe0\x00\x10" + b"\0" * 100,
        b"\xff\xd8" + b"\xff" * 1000,
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 1000,
        b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 100,
        b"RIFF\0\0\0\0WAVE" + b"\0" * 100,
    ],
)
def test_what_is_no_picture_is_refused(content: bytes, approved: Approved) -> None:
    with pytest.raises(ValueError) as raised:
        picture_of(content)
    assert str(raised.value) == approved("message")


def test_a_header_that_says_too_many_pixels_or_none_is_refused() -> None:
    for width, height, words in ((60_000, 60_000, "pixels"), (2**31 - 1, 1, "pixels"), (0, 5, "no size")):
        header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\0" * 20
        with pytest.raises(ValueError, match=words):
            picture_of(header)


def test_a_picture_of_too_many_bytes_is_refused(approved: Approved) -> None:
    with pytest.raises(TooLarge) as raised:
        picture_of(encoded("PNG") + b"\0" * PICTURE_BYTES)
    assert str(raised.value) == approved("message")
