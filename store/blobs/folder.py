"""Blobs: immutable files named by their sha256, in a local or shared directory.

The file `service` in it has the id of the service to which they belong. A folder without it, as a mount point has on
which nothing is mounted, is never taken for an empty one.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
import errno
import os
from pathlib import Path
import time
from typing import BinaryIO, ClassVar
from uuid import uuid4

from store.blobs.facts import DiskSpace
from store.blobs.writer import CHUNK, Blob, BlobWriter, FinishedBlob, copy_file
from torchyard.contract.errors import NotFound
from torchyard.host.failpoints import failpoint
from torchyard.host.privatefile import create_private
from torchyard.host.recordfiles import sync_folder

_ABANDONED_S = 24 * 3600


class FolderAway(OSError):
    """The folder is not the one of the service's blobs any more. It may come back."""

    def __init__(self, root: Path, *, service: str) -> None:
        what = f"this is not the folder of blobs of service {service} any more: is it still mounted?"
        super().__init__(errno.ESTALE, what, str(root))


class BlobFolder:
    """A directory of blobs that any number of processes share.

    Once they are bound to a service, each call that finds another folder there, or none, raises FolderAway, an OSError.
    """

    travel: ClassVar[bool] = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self._text = str(root)
        self._incoming = root / "incoming"
        self._worker_uploads = self._incoming / "workers"
        self._service: str | None = None

    @property
    def owner(self) -> str | None:
        """The id of the service whose blobs these are; None if the folder has no mark. Raises OSError."""
        try:
            return self._mark.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def mark(self, service: str) -> bool:
        """Marks the folder with the service's id. Returns False if it has a mark already. Raises OSError."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return create_private(self._mark, f"{service}\n")

    def unmark(self) -> None:
        """Removes the folder's mark. Raises OSError."""
        self._mark.unlink(missing_ok=True)

    def bind(self, service: str) -> None:
        """Makes all later calls check that the folder has the service's mark."""
        self._service = service

    def check(self) -> None:
        """Raises FolderAway if the blobs are bound to a service, and the folder is not its own. Raises OSError, too."""
        if self._service is not None and self.owner != self._service:
            raise FolderAway(self.root, service=self._service)

    def add(self, source: BinaryIO) -> Blob:
        """Copies `source` to its end and hashes it; the blob is durable when this returns. Raises OSError."""
        writer = self.create()
        try:
            while writer.copy_from(source, CHUNK):
                pass
            blob = writer.finish()
            self.publish_all([writer])
        finally:
            writer.discard()
        return blob

    def create(self, *, beside: Callable[[bytes], object] | None = None) -> BlobWriter:
        """Returns a writer of a new blob. `beside` gets all bytes that are copied into it. Raises OSError."""
        self.check()
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BlobWriter(self._incoming / uuid4().hex, beside)

    def publish(self, path: Path, sha256: str) -> None:
        """Gives a file of the blobs' file system, which was synced, the name of its sha256; durable when this returns.

        It replaces an existing blob of that name, which may be damaged. Raises OSError.
        """
        self._publish([(path, sha256)])

    def publish_all(self, finished: Iterable[FinishedBlob]) -> None:
        """Gives finished blobs their names, as `publish` does. No file is lent to a folder. Raises OSError."""
        self._publish((each.path, each.blob.sha256) for each in finished if isinstance(each, BlobWriter))

    def publish_links(self, files: Iterable[tuple[Path, str]]) -> None:
        """Does what `publish` does, and leaves the files where they are, too. Raises OSError."""
        linked: list[tuple[Path, str]] = []
        for path, sha256 in files:
            link = self._incoming / uuid4().hex
            link.hardlink_to(path)
            linked.append((link, sha256))
        self._publish(linked)

    def has(self, sha256: str, *, size: int) -> bool:
        """Returns whether there is a blob of that name and size. Its bytes are not read. Raises OSError."""
        try:
            return self.path(sha256).stat().st_size == size
        except FileNotFoundError:
            self.check()
            return False

    def remove(self, sha256: str, *, in_time: Callable[[], bool]) -> bool:
        """Removes a blob if it exists. Open readers can still read it. Raises OSError.

        Returns False and removes nothing once `in_time` says that this process has stood still for too long: the same
        bytes may have been published again.
        """
        self.check()
        path, taken = self.path(sha256), self._incoming / uuid4().hex
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.utime(path)  # `remove_abandoned` leaves it alone
            path.rename(taken)
        except FileNotFoundError:
            return True
        if not (is_removed := in_time()):
            with suppress(FileExistsError):
                path.hardlink_to(taken)
        taken.unlink()
        return is_removed

    def remove_abandoned(self) -> None:
        """Removes unpublished files that are more than a day old. Raises OSError."""
        self.check()
        if not self._incoming.exists():
            return
        before = time.time() - _ABANDONED_S
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):  # published meanwhile
                if path != self._worker_uploads and path.stat().st_mtime < before:
                    path.unlink()

    def disk_space(self) -> DiskSpace:
        """Returns the total and free bytes of the blobs' disk. Raises OSError."""
        self._require_root()
        return DiskSpace.of(self.root)

    def path(self, sha256: str) -> Path:
        """Returns the path of a blob, which may not exist."""
        return Path(f"{self._text}/{sha256[:2]}/{sha256}")  # three times as fast as joining, for 10,000 of them

    def open(self, sha256: str) -> BinaryIO:
        """Opens a blob for reading. Raises NotFound and OSError."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            self.check()
            raise NotFound(f"blob {sha256} is not in the store") from None

    def copy_out(self, sha256: str, target: Path, *, check: Callable[[], object] = lambda: None) -> bool:
        """Copies a blob to `target`, a new file. Raises OSError.

        Returns False and leaves no file if the blob is missing or damaged. `check` is called before each part, and may
        raise to end the copy.
        """
        try:
            with self.open(sha256) as source:
                whole = copy_file(source, target, check) == sha256
        except NotFound:
            return False
        if not whole:
            target.unlink()
        return whole

    @property
    def uploads(self) -> Path:
        """The folder of unfinished uploads, which become blobs by a rename. Raises OSError."""
        self.check()
        return self.root / "uploads"

    @property
    def worker_uploads(self) -> Path:
        """The folder of what remote workers upload, one for each. Raises OSError."""
        self.check()
        return self._worker_uploads

    def _publish(self, files: Iterable[tuple[Path, str]]) -> None:
        self.check()
        folders = set[Path]()
        for path, sha256 in files:
            target = self.path(sha256)
            target.parent.mkdir(exist_ok=True)
            failpoint("blob.rename")
            path.rename(target)
            failpoint("blob.renamed")
            folders.add(target.parent)
        for folder in sorted(folders):
            sync_folder(folder)
        sync_folder(self.root)

    def _require_root(self) -> None:
        """Makes the folder, but never that of a service, which may be away."""
        self.check()
        if self._service is None:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _mark(self) -> Path:
        return self.root / "service"
