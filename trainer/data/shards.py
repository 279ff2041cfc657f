"""A source of shards: tars, each with many files of the data set, and what their names say about the samples."""

from collections.abc import Iterator, Sequence
import contextlib
from dataclasses import dataclass
from functools import cached_property
import hashlib
import json
import os
from pathlib import Path
import tempfile
import time
from typing import Any

from torchyard.contract.bundles.shards import INDEX, SUFFIX, Entry, Index, index_lines, is_hidden, parse_index
from torchyard.contract.errors import DataError
from trainer.data.hashing import SETTLED_NS, identity_of
from trainer.data.scanning import ALONE, Files, Scan
from trainer.data.splits import TRAIN, VALIDATION, WORDS
from trainer.data.tars import InShard, scan_tar, tar_size

MOST_KEPT = 16
"""Indexes that are kept in the owner's cache."""
_LONGEST_LINE = 1 << 26


@dataclass(frozen=True)
class Shards:
    """The files in the tars of a folder."""

    root: Path
    index: Index

    @cached_property
    def names(self) -> list[str]:
        """The names of the tars below the folder."""
        return list(self.index.shards)

    def file(self, entry: Entry) -> InShard:
        return InShard(self._paths[entry.shard], entry.name, entry.offset, entry.size)

    @cached_property
    def _paths(self) -> list[str]:
        return [str(self.root / name) for name in self.names]


def is_sharded(root: Path) -> bool:
    """Returns whether a folder has tars, and no folders with the files themselves."""
    if (root / INDEX).is_file():
        return True
    if not any(_tars(root)):
        return False
    folders = [path for path in _listed(root) if path.is_dir() and not is_hidden(path.name)]
    return all(folder.name in WORDS and not any(path.is_dir() for path in _listed(folder)) for folder in folders)


def read_shards(root: Path, scan: Scan = ALONE) -> Shards:
    """Returns what the tars hold: by the folder's index, or by their headers, which are read once. Raises DataError."""
    names = sorted(_tars(root))
    file = root / INDEX
    if not file.exists():
        return Shards(root, _scanned(root, names, scan))
    index = _read(file)
    for name in names:
        if name not in index.shards:
            raise DataError(f"{file} does not have {name}: the index does not fit the tars beside it")
    for name, size in index.shards.items():
        if tar_size(root / name) != size:
            raise DataError(f"{root / name} has {tar_size(root / name)} bytes, and {size} by {file}")
    seen: set[tuple[int, str]] = set()
    for entry in index.entries:
        if (entry.shard, entry.name) in seen:
            raise DataError(f"{file} has {entry.name} twice")
        seen.add((entry.shard, entry.name))
    return Shards(root, index)


def listing(shards: Shards, files: Sequence[InShard], scan: Scan) -> dict[str, Any]:
    """Returns the part of what the ranks share that tells the tars and the files in them. Raises DataError."""
    position = {str(shards.root / name): index for index, name in enumerate(shards.names)}
    members = [(position[file.shard], file.name, file.offset, file.size) for file in files]
    digest = hashlib.sha256(json.dumps(members).encode()).hexdigest()
    return {"members": members, "index": digest, **scan.listing(shards.names, shards.root)}


def shared_files(files: Files, members: Sequence[tuple[int, str, int, int]]) -> list[InShard]:
    """Returns the files that `listing` tells."""
    paths = [str(files.root / name) for name in files.names]
    return [InShard(paths[shard], name, offset, size) for shard, name, offset, size in members]


def split_of(shard: str) -> str | None:
    """Returns the split with which the name of a tar begins, or None: `train` for `train/0.tar` and `train-0.tar`."""
    return next((split for split in WORDS if shard.startswith((f"{split}/", f"{split}-", f"{split}_"))), None)


def _tars(root: Path) -> Iterator[str]:
    for folder in (root, *(root / split for split in (TRAIN, *VALIDATION))):
        for path in _listed(folder) if folder.is_dir() else ():
            if path.suffix == SUFFIX and not is_hidden(path.name):
                yield path.relative_to(root).as_posix()


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error


def _scanned(root: Path, names: Sequence[str], scan: Scan) -> Index:
    kept = _kept_index(root, names)
    sizes = {name: tar_size(root / name) for name in names}
    if kept is not None and kept.exists():
        with contextlib.suppress(DataError):  # what is no index is written anew
            if (index := _read(kept)).shards == sizes:
                return index
    entries = [
        entry
        for shard, name in enumerate(scan.each(names, "reads the headers"))
        for entry in scan_tar(root / name, shard=shard, size=sizes[name])
    ]
    index = Index(sizes, entries)
    if kept is not None:
        with contextlib.suppress(OSError):  # they are read again
            _keep(kept, index)
    return index


def _read(file: Path) -> Index:
    try:
        with file.open(encoding="utf-8") as lines:
            return parse_index(iter(lambda: lines.readline(_LONGEST_LINE), ""), where=str(file))
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def _kept_index(root: Path, names: Sequence[str]) -> Path | None:
    """Returns where the index of these tars is kept. None: one of them was changed just now, and may be again."""
    try:
        statuses = [(root / name).stat() for name in names]
    except OSError as error:
        raise DataError(f"{root} cannot be read: {error.strerror}") from error
    if max(max(status.st_mtime_ns, status.st_ctime_ns) for status in statuses) > time.time_ns() - SETTLED_NS:
        return None
    what = [str(root), *([name, identity_of(status)] for name, status in zip(names, statuses, strict=True))]
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
    return Path(os.path.expanduser(cache), "torchyard", "shards", key)  # noqa: PTH111 a user may have no home


def _keep(file: Path, index: Index) -> None:
    """Writes an index at once, and removes the oldest ones."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    older = sorted(file.parent.glob("[!.]*"), key=lambda path: path.stat().st_mtime_ns)
    for path in older[: max(0, len(older) - MOST_KEPT + 1)]:
        path.unlink()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=".", delete=False) as written:
        try:
            written.writelines(index_lines(index))
            written.close()
            os.replace(written.name, file)  # noqa: PTH105 it has a name, and no path
        except OSError:
            os.unlink(written.name)  # noqa: PTH108
            raise
