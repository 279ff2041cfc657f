"""Finds the folders that are one checkpoint each, among what matches the patterns of `config.checkpoints`.

A folder that a pattern matches is one if it has a known layout. One that a pattern names, without `*`, `?` or `[…]` in
its last name or by a `/` at its end, is one whatever its layout. What matches in a folder of a known layout belongs to
that folder: `out/*/*` finds what `out/*` finds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
import stat

from torchyard.contract.errors import DataError
from torchyard.host.untrusted import open_inside
from worker.attempts.capture import layouts
from worker.attempts.files.copying import identity
from worker.attempts.files.matching import Search
from worker.host.looks import Entries, Match, Parts

MOST_LOOKED_AT = 20_000
"""Files of one folder that are looked at: more than a checkpoint may have."""
_BESIDE = frozenset({"latest", "zero_to_fp32.py"})
_LONGEST_TAG = 255


@dataclass(frozen=True)
class FolderMatch(Match):
    """A folder that is one checkpoint. `status` is another one when any file below it is: see `_status`."""

    files: Sequence[Match] = ()
    """All files below it, by their paths, and of DeepSpeed `latest` beside it."""
    lacks: str | None = None
    """What is still to be written."""
    is_sealed: bool = False
    """Whether the file is there that is written last."""
    left_out: Sequence[Parts] = ()
    """Links and special files below it, which are not stored."""


def find(search: Search, base: Parts, patterns: Sequence[str]) -> list[Match]:
    """Returns the files and the folders below `base` that are one checkpoint each."""
    return _Grouping(search, base).grouped(search.find(base, patterns))


def looked_at(root: Path, parts: Parts) -> FolderMatch | None:
    """Returns a folder that is one checkpoint, as it is now; None if it has no files any more."""
    grouping = _Grouping(Search(root), ())
    grouping.take(parts)
    return next(iter(grouping.matches), None)


class _Grouping:
    def __init__(self, search: Search, base: Parts) -> None:
        self._search = search
        self._base = base
        self._matched = set[Parts]()
        """Folders that match, or in which something does."""
        self.matches: list[FolderMatch] = []
        self._covered: set[Parts] = set()
        """Folders whose files belong to a checkpoint."""
        self._beside: set[Parts] = set()

    def grouped(self, files: dict[Parts, Match]) -> list[Match]:
        around = {parts[:end] for parts in files for end in range(len(self._base) + 1, len(parts))}
        folders = {parts for parts in self._search.folders if parts[: len(self._base)] == self._base}
        self._matched = {*folders, *(parts[:-1] for parts in files)}
        for parts in sorted({*around, *folders}):  # a folder before those in it
            if parts not in self._covered:
                self._look(parts)
        alone = [match for match in files.values() if match.parts[:-1] not in self._covered]
        return [*(match for match in alone if match.parts not in self._beside), *self.matches]

    def _look(self, parts: Parts) -> None:
        here = self._search.entries(parts)
        names = _names(here.files)
        # A model of which something below another folder matches may be the one from which the program starts.
        if layouts.is_checkpoint(parts[-1], names) or (parts in self._matched and layouts.is_model(names)):
            self.take(parts)
        elif self._search.folders.get(parts, False):
            inner = [(*parts, name) for name in here.folders]
            known = [
                each for each in inner if layouts.is_checkpoint(each[-1], _names(self._search.entries(each).files))
            ]
            for each in known or [parts]:
                self.take(each)

    def take(self, parts: Parts) -> None:
        matches, left_out, lacks = list[Match](), list[Parts](), None
        for folder, here in self._walk(parts):
            self._covered.add(folder)
            matches += here.files
            left_out += [(*folder, name) for name in here.others]
            sizes = {match.parts[-1]: match.status.st_size for match in here.files}
            lacks = lacks or layouts.lacking(folder[-1], sizes)
        direct = [match for match in matches if match.parts[:-1] == parts]
        beside = self._latest(parts) if layouts.is_of_deepspeed(parts[-1], _names(direct)) else []
        if not matches:
            return
        if self._search.is_cut:
            lacks = lacks or "not all of its files were looked at"
        times = {"/".join(match.parts[len(parts) :]): match.status.st_mtime_ns for match in matches}
        self.matches.append(
            FolderMatch(
                parts,
                _status(matches),
                files=sorted([*matches, *beside], key=lambda match: match.parts),
                lacks=lacks,
                is_sealed=layouts.is_sealed(times),
                left_out=left_out,
            )
        )

    def _walk(self, top: Parts) -> Iterator[tuple[Parts, Entries]]:
        """Yields each folder that belongs to the checkpoint, with what lies in it."""
        count = 0
        for folder, here in self._search.below(top, enters=lambda path: _belongs(path, top)):
            yield folder, here
            count += len(here.files)
            if count > MOST_LOOKED_AT:
                return

    def _latest(self, folder: Parts) -> list[Match]:
        """Returns the file that DeepSpeed writes beside its newest folder, if it names this one."""
        around = folder[:-1]
        self._beside |= {(*around, name) for name in _BESIDE}
        for match in self._search.entries(around).files:
            if match.parts[-1] == "latest" and self._text(match) == folder[-1]:
                return [match]
        return []

    def _text(self, match: Match) -> str | None:
        try:
            file = open_inside(self._search.root, *match.parts)
            if file is None:
                return None
            with file:
                return file.read(_LONGEST_TAG + 1).decode().strip()
        except (DataError, OSError, UnicodeDecodeError):
            return None


def _belongs(folder: Parts, top: Parts) -> bool:
    return folder[:-1] != top or not layouts.is_of_its_own(folder[-1])


def _names(files: Iterable[Match]) -> set[str]:
    return {match.parts[-1] for match in files}


def _status(files: Sequence[Match]) -> os.stat_result:
    """Returns what stands for the status of all: their bytes, the newest time, and a number made of what each is."""
    digest = hashlib.sha256()
    for match in sorted(files, key=lambda match: match.parts):
        digest.update(os.fsencode("/".join(match.parts)) + b"\0" + repr(identity(match.status)).encode())
    number = int.from_bytes(digest.digest()[:7])
    size, modified_ns = sum(match.status.st_size for match in files), max(match.status.st_mtime_ns for match in files)
    device, times = files[0].status.st_dev, (modified_ns // 10**9,) * 3
    return os.stat_result(
        (stat.S_IFDIR, number, device, 1, 0, 0, size, *times), {"st_mtime_ns": modified_ns, "st_ctime_ns": modified_ns}
    )
