"""Files of pictures and masks: alone in a folder, or in a tar."""

import io
from pathlib import Path

from torchyard.contract.bundles.shards import MOST_FILE_BYTES
from torchyard.contract.errors import DataError
from torchyard.models.decoding import Header, header
from trainer.data.tars import InShard, read_file

PictureFile = str | Path | InShard

_HEADER_BYTES = 1 << 16
"""Most headers lie within so many bytes."""


class Contents(io.BytesIO):
    """The first bytes of a file in a tar. Its name says where they are from."""

    def __init__(self, file: InShard, size: int) -> None:
        super().__init__(read_file(file, size))
        self.name = str(file)

    def __str__(self) -> str:
        return self.name


def opened(file: PictureFile, size: int = MOST_FILE_BYTES) -> str | Path | Contents:
    """Returns what a decoder reads: the path of a file, or at most `size` bytes of one in a tar. Raises DataError."""
    return Contents(file, size) if isinstance(file, InShard) else file


def header_of(file: PictureFile) -> Header:
    """Reads a picture's header. Raises DataError."""
    try:
        return header(opened(file, _HEADER_BYTES))
    except DataError:
        if not isinstance(file, InShard):
            raise
        return header(opened(file))
