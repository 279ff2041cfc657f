"""Copies the pictures that an attempt shows into the blob store, and returns what it shows as items.

A job wrote both the line and the file. A picture is read whole, as it is small, and what is checked is what is stored.
"""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import BinaryIO, TypeAlias

from store.worker.records import Batch, Blob, BlobStore, FinishedBlob, HashedFile, NewMedia, PictureFacts
from torchyard.contract.attempts.events import Shown
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.media.data import media_data
from torchyard.contract.media.kinds import PICTURE_BYTES, MediaKind, MediaPart
from torchyard.contract.media.picture import Picture, picture_of
from torchyard.contract.wire.text import printable
from torchyard.host.untrusted import open_inside
from worker.attempts.output.warnings import warn
from worker.host.mask import Mask

MEDIA_LIMIT = 8 << 20
"""Bytes of pictures that one batch has, and one item more."""
_MIN_COST = 1 << 18  # opening and syncing a picture counts as copying so many bytes
_MOST_TOLD = 10
"""Items of which a message says why they are not stored."""
_KEY_SHOWN = 60

Files: TypeAlias = dict[MediaPart, str]
_FILES: dict[MediaKind, tuple[frozenset[MediaPart], ...]] = {
    MediaKind.IMAGE: (frozenset({"image"}),),
    MediaKind.OVERLAY: (
        frozenset({"image", "truth"}),
        frozenset({"image", "predicted"}),
        frozenset({"image", "truth", "predicted"}),
    ),
}


class PictureCopy:
    """A picture in the blob store that has no name yet."""

    def __init__(self, blobs: BlobStore, content: bytes, *, opened: Callable[[], BinaryIO]) -> None:
        """`opened`: opens its file. Raises OSError."""
        finished = HashedFile(opened) if blobs.travel else blobs.create()
        try:
            finished.copy_from(BytesIO(content), len(content))
            self.blob: Blob = finished.finish()
        except BaseException:
            finished.discard()
            raise
        self._finished = finished

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The finished blob, which has no name in the store yet."""
        return [self._finished]

    def discard(self) -> None:
        """Removes the blob if it has no name. Raises OSError."""
        self._finished.discard()


class ShownItems:
    """What one attempt shows."""

    def __init__(self, run: RunDir, blobs: BlobStore, *, mask: Mask) -> None:
        """`mask`: what no message may have."""
        self._run = run
        self._mask = mask
        self._blobs = blobs
        self._left_out = 0

    def add(self, line: Shown, batch: Batch) -> tuple[list[PictureCopy], int]:
        """Adds the item to the batch, or says why not. Returns its pictures, and how much of `MEDIA_LIMIT` it takes.

        Raises OSError: then nothing of it is left.
        """
        copies: dict[MediaPart, tuple[PictureCopy, Picture]] = {}
        try:
            data = _data_of(line)
            for part, name in line.files.items():
                content, picture = self._read(name)
                copies[part] = PictureCopy(self._blobs, content, opened=partial(self._open, name)), picture
        except (DataError, ValueError) as error:
            _discard(copies)
            self._refuse(line, str(error), batch)
            return [], _MIN_COST
        except BaseException:
            _discard(copies)
            raise
        pictures = [_facts(part, copy.blob, picture) for part, (copy, picture) in copies.items()]
        batch.media.append(
            NewMedia(
                line.key,
                line.kind,
                line.step,
                line.number,
                caption=line.caption,
                classes=line.classes,
                data=data,
                pictures=pictures,
            )
        )
        return [copy for copy, _ in copies.values()], sum(max(_MIN_COST, picture.size) for picture in pictures)

    def _read(self, name: str) -> tuple[bytes, Picture]:
        """Returns a picture. Raises DataError, ValueError and OSError."""
        with self._open(name) as source:
            content = bytearray()
            while len(content) <= PICTURE_BYTES and (chunk := source.read(PICTURE_BYTES + 1 - len(content))):
                content += chunk
        return bytes(content), picture_of(bytes(content))

    def _open(self, name: str) -> BinaryIO:
        source = open_inside(self._run.job, self._run.media.name, name)
        if source is None:
            raise DataError(f"its file {name} is missing")
        return source

    def _refuse(self, line: Shown, why: str, batch: Batch) -> None:
        self._left_out += 1
        if self._left_out <= _MOST_TOLD:
            more = "; further ones are not reported" if self._left_out == _MOST_TOLD else ""
            key = printable(self._mask.text(line.key))[:_KEY_SHOWN]
            warn(batch, f"{line.kind} {key!r} of step {line.step} was not stored: {why}{more}")


def _data_of(line: Shown) -> dict[str, object] | None:
    """Returns the data of the item. Raises ValueError if the kind of item does not have what the line has."""
    if line.kind in _FILES:
        if line.files.keys() not in _FILES[line.kind] or line.data is not None:
            raise ValueError(f"it does not have the files of an {line.kind}")
        return None
    if line.files or line.data is None:
        raise ValueError(f"it does not have the data of a {line.kind}")
    return media_data(line.kind, line.data)


def _facts(part: MediaPart, blob: Blob, picture: Picture) -> PictureFacts:
    return PictureFacts(part, picture.media_type, blob.size, blob.sha256, picture.width, picture.height)


def _discard(copies: dict[MediaPart, tuple[PictureCopy, Picture]]) -> None:
    for copy, _ in copies.values():
        copy.discard()
