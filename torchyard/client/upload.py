"""The bytes of an upload: what is missing of a bundle, compressed as it is read."""

from collections.abc import Callable, Generator
from pathlib import Path

from backports.zstd import ZstdCompressor

from torchyard.contract.bundles import FREE_BYTES, is_compressed_too_much

_CHUNK = 1 << 20
_FREE_BYTES = FREE_BYTES // 2  # the service may see less of the stream than was sent of it

OnUpload = Callable[[int, int], None]
"""Called with the bytes of the bundle that were sent so far and their total; first with those that had arrived."""


def compressed(path: Path, *, offset: int, size: int, on_progress: OnUpload | None) -> Generator[bytes]:
    """Yields the file's bytes from `offset` as one zstd stream, of which each item can be decoded. Raises OSError.

    Ends early where the bytes become so small that the service would refuse them: the rest must be sent `plain`.
    """
    compressor = ZstdCompressor()
    sent = decoded = 0
    for chunk in plain(path, offset=offset, size=size, on_progress=on_progress):
        packed = compressor.compress(chunk, mode=ZstdCompressor.FLUSH_BLOCK)
        sent, decoded = sent + len(packed), decoded + len(chunk)
        if is_compressed_too_much(sent=sent, decoded=decoded, free=_FREE_BYTES):
            return
        yield packed
    yield compressor.flush()


def plain(path: Path, *, offset: int, size: int, on_progress: OnUpload | None) -> Generator[bytes]:
    """Yields the file's bytes from `offset`. Raises OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(_CHUNK):
            yield chunk
            offset += len(chunk)
            if on_progress is not None:
                on_progress(offset, size)
