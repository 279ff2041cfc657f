"""Writes and reads record files. A record file is whole, or it is not there."""

from collections.abc import Callable
import contextlib
import os
from pathlib import Path
import secrets
from typing import TypeVar

from torchyard.contract.wire.codec import Record
from torchyard.host.failpoints import failpoint

T = TypeVar("T", bound=Record)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_record(path: Path, record: Record) -> None:
    """Publishes `record` at `path`: a reader sees all of it or nothing, also after a power cut.

    Follows no link, neither the folder nor a name in it. Leaves nothing behind if it fails. Raises OSError.
    """
    _publish(path, record, _rename)


def create_record(path: Path, record: Record) -> None:
    """Publishes `record` as `write_record` does, unless there is a file at `path`, on whatever host. Raises OSError."""
    _publish(path, record, _link)


def sync_folder(path: Path) -> None:
    """Makes the names in the folder `path` durable. Raises OSError."""
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_record(path: Path, kind: type[T]) -> T | None:
    """Returns the record at `path`, a place that only we write to. None if there is no such file.

    Raises OSError, and ValueError for a malformed record.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    return kind.from_json(raw)


def _publish(path: Path, record: Record, put: Callable[[int, str, str], None]) -> None:
    """Writes `record` under a name of its own, and lets `put(folder, that name, name)` give it its name."""
    kind = path.parent.name if path.stem.isdecimal() else path.stem
    temporary = f".{path.name}.{secrets.token_hex(8)}"  # a name that nobody can have guessed
    folder = os.open(path.parent, _FOLDER | os.O_NOFOLLOW)
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o600, dir_fd=folder), "wb") as file:
            file.write(record.to_json().encode())
            file.flush()
            failpoint(f"record.{kind}.fsync")
            os.fsync(file.fileno())
        failpoint(f"record.{kind}.rename")
        put(folder, temporary, path.name)
        failpoint(f"record.{kind}.renamed")
        os.fsync(folder)
    finally:
        with contextlib.suppress(OSError):  # after a rename there is none
            os.unlink(temporary, dir_fd=folder)
        os.close(folder)


def _rename(folder: int, temporary: str, name: str) -> None:
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _link(folder: int, temporary: str, name: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # a file system without links, which no two hosts share
        _rename(folder, temporary, name)
