"""What becomes a checkpoint of the source `captured`: its name, its place in the order, and the copy of a file."""

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib
import os
import re

from store.worker.records import CAPTURED, BlobStore, CapturedFile, NewCheckpoint, captured_name
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.files.paths import is_file_path
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.capture.whole import is_whole
from worker.attempts.files.copying import FileCopy
from worker.host import rundirs
from worker.host.looks import Match, Parts

TORN = ".torn"
"""Ends the name of a version that is not whole, beside the whole one that took its place. It is no checkpoint."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9._=+@-]")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Candidate:
    """A file or a folder that matches, as one look found it."""

    match: Match
    saved_at: int = 0
    """Nanoseconds."""
    names: int = 1
    """How many names it has, all of them in the job's own folders."""
    links: Sequence[Parts] = ()
    """Its other names below the same root."""
    rested: bool = False
    """Whether it was at rest over two looks, and closed by all who had it open; or its program has ended well, or has
    begun the folder that follows."""
    is_alike: bool = False
    """Whether the folder has all that those beside it have."""

    @property
    def parts(self) -> Parts:
        """Its path below the job's folder."""
        return self.match.parts

    @property
    def name(self) -> str:
        """That of the checkpoint."""
        text = "/".join(rundirs.own_path(self.parts))
        file, status = hashlib.sha256(os.fsencode(text)).hexdigest()[:12], self.match.status
        number = status.st_ino if isinstance(self.match, FolderMatch) else None
        return captured_name(file, modified_ns=status.st_mtime_ns, size=status.st_size, number=number)

    @property
    def files(self) -> Sequence[Match]:
        """It alone, or all files of the folder."""
        return self.match.files if isinstance(self.match, FolderMatch) else [self.match]

    def order_key(self, looked_ns: int) -> tuple[int, Sequence[int], Parts]:
        """Returns what sorts the files of one look by age: the time of saving, then the numbers in the name."""
        numbers = [int(number) for number in _NUMBER.findall(self.parts[-1])]
        return min(self.match.status.st_mtime_ns, looked_ns), numbers, self.parts


class CapturedCopy(FileCopy):
    """Copies one file that becomes a checkpoint. Has the interface of `CheckpointCopy`, too."""

    def __init__(
        self, run: RunDir, blobs: BlobStore, candidate: Candidate, *, step: int, limit: int, is_last: bool
    ) -> None:
        """Raises as `FileCopy` does."""
        super().__init__(
            run.root.parent,
            blobs,
            candidate.match,
            limit=limit,
            what="a checkpoint",
            names=candidate.names,
            is_last=is_last,
        )
        self.candidate = candidate
        self.name = candidate.name
        whole = is_whole(self.source, candidate.parts[-1])
        self.damaged = not (candidate.rested if whole is None else whole)
        self._step = step

    @property
    def checkpoint(self) -> NewCheckpoint:
        """What is listed, once all is copied."""
        root, *names = rundirs.own_path(self.parts)
        path, is_own = listed_path(names)
        links = [listed_path(rundirs.own_path(link)[1:]) for link in self.candidate.links]
        file = CapturedFile(
            path=path,
            size=self.blob.size,
            sha256=self.blob.sha256,
            root=None if root == WORK else root,
            modified_ns=self.match.status.st_mtime_ns if is_own else None,
            links=[link for link, is_its in links if is_its],
        )
        return NewCheckpoint(
            self.name,
            Manifest(step=self._step, files=[]),
            [file],
            source=CAPTURED,
            saved_at=self.candidate.saved_at,
            damaged=self.damaged,
        )


def listed_path(names: Sequence[str]) -> tuple[str, bool]:
    """Returns the path that a checkpoint lists, and whether it is the file's own: one that can be stored is."""
    path = "/".join(names)
    if is_file_path(path):
        return path, True
    usual = [_UNUSUAL.sub("_", name)[-100:] for name in names[-5:]]
    return "/".join(name if name.strip(".") else "_" for name in usual), False
