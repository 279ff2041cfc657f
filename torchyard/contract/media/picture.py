"""What the first bytes of a picture say of it. Nothing is decoded."""

from dataclasses import dataclass

from torchyard.contract.media.kinds import PICTURE_BYTES, PICTURE_PIXELS

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_SIZES_OF_JPEG = frozenset({0xC0, 0xC1, 0xC2})
"""The markers of JPEG behind which the size stands, of the kinds that a browser shows."""
_BEFORE_SIZE = frozenset({0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE})
"""The other markers that may stand before the size. Of any other, nobody knows what a decoder makes."""
MOST_MARKERS = 2000
"""Markers, and bytes that fill, before the size of a JPEG. A profile of 100 MB takes as many."""
_VP8X_BYTES = 10
_LENGTH_ITSELF = 2
"""The bytes of a length in JPEG, which it counts."""


class TooLarge(ValueError):
    """A picture has more bytes or pixels than one may have."""


@dataclass(frozen=True)
class Picture:
    """The type and the size of a picture. `suffix` is that of its file."""

    media_type: str
    width: int
    height: int

    @property
    def suffix(self) -> str:
        return {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}[self.media_type]


def picture_of(content: bytes) -> Picture:
    """Returns what the picture is. Raises ValueError for what is no PNG, JPEG or WebP, or is too large."""
    if len(content) > PICTURE_BYTES:
        raise TooLarge(f"it has {len(content)} bytes: a picture may have {PICTURE_BYTES}")
    found = _read(content)
    if found is None:
        raise ValueError("it is not a PNG, JPEG or WebP")
    if not found.width or not found.height:
        raise ValueError("its header says no size")
    if found.width * found.height > PICTURE_PIXELS:
        raise TooLarge(f"it has {found.width} x {found.height} pixels: a picture may have {PICTURE_PIXELS}")
    return found


def _read(content: bytes) -> Picture | None:
    if content.startswith(_PNG):
        return _png(content)
    if content.startswith(_JPEG):
        return _jpeg(content)
    return _webp(content) if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def _png(content: bytes) -> Picture | None:
    if len(content) < 33 or content[8:16] != b"\0\0\0\rIHDR":
        return None
    return Picture("image/png", _big(content, 16, 4), _big(content, 20, 4))


def _jpeg(content: bytes) -> Picture | None:
    at = 2
    for _ in range(MOST_MARKERS):
        if at + 9 > len(content) or content[at] != 0xFF:
            return None
        marker = content[at + 1]
        length = _big(content, at + 2, 2)
        if marker == 0xFF:  # a byte that fills
            at += 1
        elif marker in _SIZES_OF_JPEG:
            return Picture("image/jpeg", _big(content, at + 7, 2), _big(content, at + 5, 2))
        elif marker in _BEFORE_SIZE and length >= _LENGTH_ITSELF:
            at += 2 + length
        else:
            return None
    return None


def _webp(content: bytes) -> Picture | None:
    if len(content) < 30:
        return None
    kind = content[12:16]
    if kind == b"VP8X" and _little(content, 16, 4) == _VP8X_BYTES:
        return Picture("image/webp", _little(content, 24, 3) + 1, _little(content, 27, 3) + 1)
    if kind == b"VP8L" and content[20] == 0x2F:
        bits = _little(content, 21, 4)
        return Picture("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        return Picture("image/webp", _little(content, 26, 2) & 0x3FFF, _little(content, 28, 2) & 0x3FFF)
    return None


def _big(content: bytes, at: int, count: int) -> int:
    return int.from_bytes(content[at : at + count], "big")


def _little(content: bytes, at: int, count: int) -> int:
    return int.from_bytes(content[at : at + count], "little")
