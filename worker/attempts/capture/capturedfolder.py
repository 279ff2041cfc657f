"""A folder that becomes one checkpoint of the source `captured`: copies its files, one after the other."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from store.worker.records import CAPTURED, BlobStore, CapturedFile, FinishedBlob, NewCheckpoint
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.files.paths import check_paths, is_file_path
from torchyard.contract.wire.text import printable
from worker.attempts.capture import folders
from worker.attempts.capture.captured import Candidate
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.capture.whole import is_whole
from worker.attempts.files.copying import Changed, FileCopy, identity, require_room
from worker.host import rundirs
from worker.host.looks import Match, Parts, names_of


class Torn(Changed):
    """It is not whole, as long as it stays as it is."""


class CapturedFolder:
    """Copies the files of a folder as they were when it was looked at. Has the interface of `CapturedCopy`.

    `final`: nobody changes it any more, and it is stored whether it is whole or not.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: BlobStore,
        candidate: Candidate,
        match: FolderMatch,
        *,
        step: int,
        limit: int,
        final: bool,
    ) -> None:
        """Copies nothing. Raises DataError if the folder cannot be stored, and OSError."""
        self.candidate = candidate
        self.match = match
        self.name = candidate.name
        self._root = run.root.parent
        self._blobs = blobs
        self._step = step
        self._limit = limit
        self._final = final
        is_reported = match.is_sealed or candidate.rested
        self._is_whole = match.lacks is None and (is_reported or candidate.is_alike)
        self._newest_ns = None if is_reported else max(file.status.st_mtime_ns for file in match.files)
        """Of the file that was written last, where its own bytes have to say that it is whole."""
        self._done: list[FileCopy] = []
        self._copy: FileCopy | None = None
        self._paths = _paths(match)
        require_room(blobs, match.status.st_size, limit=limit, what="a checkpoint")
        self._waiting = iter(match.files)
        if self.damaged and not final:
            raise Torn(match.lacks or "it may be open for writing")
        self._names = _names(self._root, run, match)

    @property
    def parts(self) -> Parts:
        return self.match.parts

    @property
    def copied(self) -> int:
        """Bytes so far."""
        return sum(copy.copied for copy in self._done) + (0 if self._copy is None else self._copy.copied)

    @property
    def damaged(self) -> bool:
        """Whether it is not whole, as far as it was copied."""
        return not self._is_whole

    @property
    def checkpoint(self) -> NewCheckpoint:
        """What is listed, once all is copied."""
        root = rundirs.own_path(self.parts)[0]
        files = [
            CapturedFile(
                path=path,
                size=copy.blob.size,
                sha256=copy.blob.sha256,
                root=None if root == WORK else root,
                modified_ns=copy.match.status.st_mtime_ns,
            )
            for path, copy in zip(self._paths, self._done, strict=True)
        ]
        return NewCheckpoint(
            self.name,
            Manifest(step=self._step, files=[]),
            files,
            source=CAPTURED,
            saved_at=self.candidate.saved_at,
            damaged=self.damaged,
        )

    def copy_some(self, limit: int) -> int:
        """Copies about `limit` bytes at most. Returns how much of it is left: if not 0, all is copied.

        Raises DataError if a file has changed meanwhile or is torn, and OSError.
        """
        while limit > 0:
            if self._copy is None:
                match = next(self._waiting, None)
                if match is None:
                    self._check_unchanged()
                    return limit
                self._copy = self._begin(match)
            limit = self._copy.copy_some(limit)
            if limit:
                self._done.append(self._copy)
                self._copy = None
                limit -= 1  # a copy that has used up its limit returns 1
        return 0

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The finished blobs, which have no names in the store yet."""
        return [copy.written for copy in self._done]

    def discard(self) -> None:
        """Removes every blob that has no name. Raises OSError."""
        for copy in (*self._done, *(() if self._copy is None else (self._copy,))):
            copy.discard()

    def _begin(self, match: Match) -> FileCopy:
        names = self._names.get(_inode(match), 1)
        copy = FileCopy(
            self._root,
            self._blobs,
            match,
            limit=self._limit,
            what="a checkpoint",
            names=names,
            is_last=self._final,
        )
        if self._is_torn(match, copy):
            self._is_whole = False
            if not self._final:
                copy.discard()
                raise Torn(f"{match.parts[-1]} is incomplete")
        return copy

    def _is_torn(self, match: Match, copy: FileCopy) -> bool:
        whole = is_whole(copy.source, match.parts[-1])
        if match.status.st_mtime_ns == self._newest_ns:
            return whole is not True
        return match.status.st_size > 0 and whole is False

    def _check_unchanged(self) -> None:
        """Raises Changed if the files are not all those that were looked at: they were copied one after the other."""
        if self._final:
            return
        now = folders.looked_at(self._root, self.parts)
        if now is None or identity(now.status) != identity(self.match.status):
            raise Changed("it has changed")


def _paths(match: FolderMatch) -> list[str]:
    """Returns the paths that the checkpoint lists. Raises DataError if no checkpoint may have them."""
    paths = ["/".join(rundirs.own_path(file.parts)[1:]) for file in match.files]
    if wrong := next((path for path in paths if not is_file_path(path)), None):
        raise DataError(f"the path of its file {printable(wrong)[-100:]!r} cannot be stored")
    try:
        check_paths(paths)
    except ValueError as error:
        raise DataError(f"it {error}") from None
    return paths


def _names(root: Path, run: RunDir, match: FolderMatch) -> Mapping[tuple[int, int], int]:
    """Returns how many names each file has that has several. Raises DataError if one is outside the job's folders."""
    linked = {_inode(file): file for file in match.files if file.status.st_nlink > 1}
    if not linked:
        return {}
    by_inode = names_of(root, [(WORK,), rundirs.job_path(run)], linked)
    for inode, file in linked.items():
        if len(by_inode[inode]) < file.status.st_nlink:
            raise DataError(f"{file.parts[-1]} has names outside the job's folders")
    return {inode: len(names) for inode, names in by_inode.items()}


def _inode(match: Match) -> tuple[int, int]:
    return match.status.st_dev, match.status.st_ino
