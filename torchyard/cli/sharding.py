"""Writes the files of a folder into shards: tars that are the same for the same files on every machine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import stat
import tempfile
from typing import IO

from torchyard.contract.bundles.shards import (
    INDEX,
    MOST_FILE_BYTES,
    MOST_FILES,
    SUFFIX,
    Entry,
    Index,
    index_lines,
    is_hidden,
)
from torchyard.contract.bundles.tar import END, header, padding
from torchyard.contract.errors import DataError, InvalidBundle

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Found:
    """The files of a folder, sorted by the bytes of their names."""

    files: dict[str, Path]
    bytes: int


def find_files(folder: Path) -> Found:
    """Returns the files below a folder, hidden ones excepted. Raises DataError for a link to a folder."""
    files: dict[str, Path] = {}
    total = 0
    for path in _walk(folder):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is neither a file nor a folder")
        if status.st_size > MOST_FILE_BYTES:
            raise DataError(f"{path} has {status.st_size} bytes; a file of a shard may have {MOST_FILE_BYTES}")
        files[path.relative_to(folder).as_posix()] = path
        total += status.st_size
    if not files:
        raise DataError(f"{folder} has no files")
    if len(files) > MOST_FILES:
        raise DataError(f"{folder} has {len(files)} files; shards may have {MOST_FILES}")
    return Found(dict(sorted(files.items(), key=lambda item: os.fsencode(item[0]))), total)


def write_shards(found: Found, out: Path, *, most: int, on_bytes: Callable[[int], None] = lambda _: None) -> Index:
    """Writes tars of at most `most` bytes, or of one larger file, and their index to the new folder `out`.

    The folder is there when it is whole. `on_bytes` is called with the bytes that are read so far. Raises DataError.
    """
    with _new_folder(out) as folder:
        on_bytes(0)
        shards, entries = dict[str, int](), list[Entry]()
        waiting, done = list(found.files.items())[::-1], 0
        while waiting:
            name = f"shard-{len(shards):05d}{SUFFIX}"
            with (folder / name).open("xb") as tar:
                while waiting and (not tar.tell() or _fits(tar.tell(), *waiting[-1], most)):
                    entry = _add(tar, len(shards), *waiting.pop())
                    entries.append(entry)
                    on_bytes(done := done + entry.size)
                tar.write(END)
                shards[name] = tar.tell()
        index = Index(shards, entries)
        with (folder / INDEX).open("x", encoding="utf-8") as lines:
            lines.writelines(index_lines(index))
    return index


def _walk(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as found:
        entries = [entry for entry in found if not is_hidden(entry.name)]
    for entry in entries:
        if entry.is_symlink() and entry.is_dir():
            raise DataError(f"{entry.path} is a link to a folder: a shard has the files of the folder itself only")
        if entry.is_dir():
            yield from _walk(Path(entry))
        else:
            yield Path(entry)


@contextmanager
def _new_folder(out: Path) -> Generator[Path]:
    """Makes a folder for the block, which becomes `out` when the block has ended without an error."""
    if out.exists():
        raise DataError(f"{out} exists")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        folder.chmod(0o755)
        yield folder
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fits(at: int, name: str, path: Path, most: int) -> bool:
    size = path.stat().st_size
    return at + len(_header(name, size)) + size + len(padding(size)) + len(END) <= most


def _add(tar: IO[bytes], shard: int, name: str, path: Path) -> Entry:
    """Writes a file. Raises DataError if it changes meanwhile."""
    with path.open("rb") as file:
        size = left = os.fstat(file.fileno()).st_size
        tar.write(_header(name, size))
        entry = Entry(shard, name, tar.tell(), size)
        while left and (chunk := file.read(min(left, _CHUNK))):
            tar.write(chunk)
            left -= len(chunk)
        if left or file.read(1):
            raise DataError(f"{path} has changed while it was read")
    tar.write(padding(size))
    return entry


def _header(name: str, size: int) -> bytes:
    try:
        return header(name, size=size, executable=False)
    except InvalidBundle as error:
        raise DataError(str(error)) from None
