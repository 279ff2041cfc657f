"""Reads a checkpoint that lies in several files: those of a folder, or of the archive that a download gives."""

from collections.abc import Callable
import errno
import mmap
import os
from pathlib import Path
import stat
from typing import Any

from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.errors import DataError
from torchyard.contract.files import archives
from torchyard.states.stateindex import INSTEAD, MOST_BYTES, read_state


def read_folder(folder: Path) -> dict[str, Any]:
    """Returns the state in a folder with an index. Its tensors are mapped from the files.

    Raises DataError if a file is missing or torn, or the index names what cannot be, and OSError.
    """

    def content_of(name: str) -> memoryview:
        try:
            return _mapped(folder / name, os.O_NOFOLLOW)
        except FileNotFoundError:
            raise DataError(f"{folder}: its file {name} is missing") from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise DataError(f"{folder}: its file {name} is a link") from None

    return _read(content_of, what=str(folder))


def read_archive(file: Path) -> dict[str, Any]:
    """Returns the state in an archive with an index, as `read_folder` does. Nothing is unpacked."""
    content = _mapped(file)
    try:
        found = archives.members(lambda at, size: bytes(content[at : at + size]), size=len(content))
        places = {name: content[start : start + size] for name, start, size in found}
    except DataError as error:
        raise DataError(f"{file}: {error.message}: download it again") from error

    def content_of(name: str) -> memoryview:
        if name not in places:
            raise DataError(f"{file}: its file {name} is missing")
        return places[name]

    return _read(content_of, what=str(file))


def _read(content_of: Callable[[str], memoryview], *, what: str) -> dict[str, Any]:
    try:
        raw = content_of(INDEX_FILE)
    except DataError as error:
        raise DataError(f"{error.message}: {INSTEAD}") from error
    if len(raw) > MOST_BYTES:
        raise DataError(f"{what}: its index has {len(raw)} bytes, and may have {MOST_BYTES}")
    return read_state(bytes(raw), content_of, what=what)


def _mapped(path: Path, flags: int = 0) -> memoryview:
    """Returns the bytes of a plain file. They are read when they are used, and changes stay in this process."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise DataError(f"{path} is not a plain file")
        if not facts.st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, facts.st_size, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)
