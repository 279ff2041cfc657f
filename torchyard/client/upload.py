"""The bytes of an upload: what is missing of a bundle, compressed as it is read."""

from collections.abc import Callable, Generator
from pathlib import Path

from backports.zstd import ZstdCompressor

_CHUNK = 1 << 20

OnUpload = Callable[[int, int], None]
"""Called with the bytes of the bundle that were sent so far and their total; first with those that had arrived."""


def compressed(path: Path, *, offset: int, size: int, on_progress: OnUpload | None) -> Generator[bytes]:
    """Yields the file's bytes from `offset` as one zstd stream, of which each item can be decoded. Raises OSError."""
    compressor = ZstdCompressor()
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(_CHUNK):
            yield compressor.compress(chunk, mode=ZstdCompressor.FLUSH_BLOCK)
            offset += len(chunk)
            if on_progress is not None:
                on_progress(offset, size)
    yield compressor.flush()
