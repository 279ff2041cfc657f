"""Pictures that a script gives, as the bytes of PNG, JPEG or WebP files. Arrays become PNG, by the standard library."""

import io
import os
from pathlib import Path
import struct
from typing import Any
import zlib

from torchyard.contract.media.kinds import PICTURE_BYTES

_COLOURS = {1: 0, 3: 2, 4: 6}
"""PNG's type of colour, by channels."""
_LEVEL = 3
"""Of zlib: a picture of a step should not hold up the training."""
_AS_IS, _LESS_ABOVE = b"\0", b"\2"
"""How PNG has a row: as it is, or less the one above it, which halves a photograph."""


def picture_bytes(image: Any) -> bytes:
    """Returns the file of a picture: bytes, a path, a picture of PIL, a figure of matplotlib, or an array.

    An array is H x W, H x W x C or C x H x W (1, 3 or 4 channels), of whole numbers to 255 or floats from 0 to 1.
    Raises TypeError and ValueError for what is no picture, and OSError.
    """
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        with Path(image).open("rb") as file:
            return file.read(PICTURE_BYTES + 1)
    file = io.BytesIO()
    if hasattr(image, "savefig"):
        image.savefig(file, format="png")
        return file.getvalue()
    if hasattr(image, "save") and hasattr(image, "mode"):
        plain = image if image.mode in {"1", "L", "LA", "P", "RGB", "RGBA"} else image.convert("RGB")
        plain.save(file, format="PNG", compress_level=_LEVEL)
        return file.getvalue()
    return _png(*_pixels(image), filtered=_LESS_ABOVE)


def mask_bytes(mask: Any) -> bytes:
    """Returns the PNG of a mask: an array H x W of numbers of classes, from 0 to 255. Or it is a file already.

    Raises TypeError and ValueError for another array, and OSError.
    """
    if isinstance(mask, (bytes, bytearray, memoryview, str, os.PathLike)):
        return picture_bytes(mask)
    array = _array(mask)
    shape = tuple(int(size) for size in array.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"a mask has a height and a width, not the shape {shape}")
    if int(array.min()) < 0 or int(array.max()) > 255:
        raise ValueError(f"a mask has numbers of classes from 0 to 255, not {array.min()} to {array.max()}")
    return _png(*shape, 1, _bytes_of(_as_bytes(array)), filtered=_AS_IS)


def _pixels(image: Any) -> tuple[int, int, int, bytes]:
    """Returns height, width, channels and the pixels of an array, each less the one above it."""
    array = _array(image)
    shape = tuple(int(size) for size in array.shape)
    if len(shape) == 2:
        array, shape = array.reshape(*shape, 1), (*shape, 1)
    if len(shape) != 3 or 0 in shape:
        raise ValueError(f"a picture is H x W, H x W x C or C x H x W, and not of the shape {shape}")
    first_is_colour = shape[0] in _COLOURS and (shape[2] not in _COLOURS or hasattr(array, "detach"))
    if first_is_colour:
        array = array.permute(1, 2, 0) if hasattr(array, "detach") else array.transpose(1, 2, 0)
    height, width, channels = (int(size) for size in array.shape)
    if channels not in _COLOURS:
        raise ValueError(f"a picture has 1, 3 or 4 channels, not the shape {shape}")
    rows = _scaled(array)
    less = rows.clone() if hasattr(rows, "detach") else rows.copy()
    less[1:] -= rows[:-1]  # modulo 256, as PNG wants it
    return height, width, channels, _bytes_of(less)


def _array(value: Any) -> Any:
    """Returns a tensor on the CPU, or an array of numpy."""
    if hasattr(value, "detach"):
        return value.detach().cpu()
    import numpy as np  # whoever has no tensor has an array of it

    array = np.asarray(value)
    if array.dtype.kind not in "buif":
        raise TypeError(f"a {type(value).__name__} is not a picture: give bytes, a path, an array, or a picture of PIL")
    return array


def _scaled(array: Any) -> Any:
    """Returns the pixels as whole numbers from 0 to 255, of type uint8."""
    if hasattr(array, "detach"):
        if array.is_floating_point():
            return array.float().nan_to_num(0.0).clamp(0, 1).mul(255).round().byte()
        return array.byte() * 255 if str(array.dtype) == "torch.bool" else array.clamp(0, 255).byte()
    import numpy as np

    if array.dtype.kind == "f":
        return (np.nan_to_num(array.astype("float32")).clip(0, 1) * 255).round().astype("uint8")
    return array.astype("uint8") * 255 if array.dtype.kind == "b" else array.clip(0, 255).astype("uint8")


def _as_bytes(array: Any) -> Any:
    return array.byte() if hasattr(array, "detach") else array.astype("uint8")


def _bytes_of(array: Any) -> bytes:
    if not hasattr(array, "detach"):
        return array.tobytes()
    flat = array.contiguous().flatten()
    try:
        return flat.numpy().tobytes()
    except RuntimeError:  # numpy is not installed
        return bytes(flat.tolist())


def _png(height: int, width: int, channels: int, pixels: bytes, *, filtered: bytes) -> bytes:
    row = width * channels
    # Each row has a byte before it that says how it is filtered.
    rows = b"".join(filtered + pixels[at : at + row] for at in range(0, len(pixels), row))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, _LEVEL)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
