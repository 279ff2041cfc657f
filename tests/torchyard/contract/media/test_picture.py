"""What the header of a picture says, as a stranger may have written it."""

from collections.abc import Callable
from io import BytesIO
import struct
from typing import Any

from PIL import Image
import pytest
import torch
from torchvision.io import decode_jpeg

from tests.approved import Approved
from torchyard.contract.media.kinds import PICTURE_BYTES
from torchyard.contract.media.picture import MOST_MARKERS, Picture, TooLarge, picture_of

pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities:DeprecationWarning")
"""torchvision's decoder is libjpeg, as a browser's. Pillow reads the size of a JPEG by itself."""


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


def hidden(marker: int, *, length: int | None = None) -> bytes:
    """Returns a JPEG of 96 x 64 that lies in a segment of a JPEG that seems to be of 8 x 8."""
    inner = encoded("JPEG", (96, 64))[2:]
    size = b"\xff\xc0\x00\x11\x08\x00\x08\x00\x08\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    begin = bytes([0xFF, marker]) + (len(inner) + 2 if length is None else length).to_bytes(2, "big")
    return b"\xff\xd8" + begin + inner + size


@pytest.mark.parametrize("unit", [b"\xff", b"\xff\xe0\x00\x02"])
def test_a_picture_of_markers_alone_is_not_read_to_its_end(unit: bytes) -> None:
    picture = encoded("JPEG")
    few, many = (b"\xff\xd8" + unit * count + picture[2:] for count in (MOST_MARKERS - 100, MOST_MARKERS))
    assert picture_of(few) == Picture("image/jpeg", 31, 17)
    with pytest.raises(ValueError, match="it is not a PNG, JPEG or WebP"):
        picture_of(many)


@pytest.mark.parametrize("marker", [0x00, 0x01, 0x02, 0xBF, 0xC8, 0xD0, 0xD8, 0xD9, 0xDC, 0xF0])
def test_a_picture_behind_a_marker_that_a_decoder_skips_is_refused(marker: int) -> None:
    with pytest.raises(ValueError, match="it is not a PNG, JPEG or WebP"):
        picture_of(hidden(marker))


def size_by_libjpeg(content: bytes) -> tuple[int, int] | None:
    """Returns the size to which a library like a browser's decodes a JPEG; None if it cannot."""
    try:
        decoded: Any = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    except RuntimeError:
        return None
    _, height, width = decoded.shape
    return width, height


def size_by_libwebp(content: bytes) -> tuple[int, int] | None:
    try:
        with Image.open(BytesIO(content)) as picture:
            return picture.size
    except (OSError, ValueError):
        return None


def agrees(content: bytes, size: Callable[[bytes], tuple[int, int] | None]) -> bool:
    """Returns whether a picture was refused, or has the size that the library decodes it to, or that refuses it."""
    try:
        found = picture_of(content)
    except ValueError:
        return True
    return size(content) in {None, (found.width, found.height)}


@pytest.mark.parametrize("length", [None, 0, 1, 2, 3])
def test_no_marker_shows_another_size_than_a_decoder(length: int | None) -> None:
    assert [marker for marker in range(256) if not agrees(hidden(marker, length=length), size_by_libjpeg)] == []


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (encoded("JPEG"), size_by_libjpeg),
        (encoded("JPEG", progressive=True), size_by_libjpeg),
        (encoded("WEBP"), size_by_libwebp),
        (encoded("WEBP", lossless=True), size_by_libwebp),
        (encoded("WEBP", exif=b"Exif\0\0" + b"x" * 10), size_by_libwebp),
    ],
    ids=["jpeg", "progressive jpeg", "webp", "lossless webp", "extended webp"],
)
def test_no_wrong_byte_of_a_header_shows_another_size_than_a_decoder(
    content: bytes, size: Callable[[bytes], tuple[int, int] | None]
) -> None:
    wrong = list[tuple[int, int]]()
    for at in range(min(len(content), 60)):
        for value in (0, 1, 2, 8, content[at] ^ 1, content[at] ^ 0x80, 0xD0, 0xFF):
            if not agrees(content[:at] + bytes([value]) + content[at + 1 :], size):
                wrong.append((at, value))
    assert wrong == []
