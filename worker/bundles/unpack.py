"""Unpacks one bundle: `python -P -m worker.bundles.unpack FOLDER SHA256`, with the tar as its input.

Whoever made the tar may be hostile. So this process may write below the folder alone, where the kernel has Landlock,
and read nothing but what it has open, and has limits of processor time and memory. It prints an `UnpackReport`.
"""

from collections.abc import Generator
from dataclasses import dataclass
import errno
import hashlib
import os
from pathlib import Path
import resource
import signal
import sys
from typing import BinaryIO

from torchyard.contract.bundles.names import MAX_BUNDLE_FILES
from torchyard.contract.bundles.tar import BLOCK, Member, read_members
from torchyard.contract.errors import InvalidBundle
from torchyard.contract.wire.codec import Record
from torchyard.host.failpoints import failpoint
from torchyard.host.parent import end_with_parent
from worker.sandbox import landlock, privileges
from worker.sandbox.opening import canonical

MEMORY_BYTES = 1 << 30
"""Most of it are hashes of names: a million take 100 MB."""
_LEAST_CPU_S = 30
_CPU_S_BYTES = 2 << 20
"""Bytes of the tar that allow a further second. Hashing and writing take a tenth of it, 4,000 files a half."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class UnpackReport(Record):
    """How the unpacking ended. Both are empty: the folder has the whole bundle, read-only."""

    invalid: str = ""
    """What is wrong with the tar."""
    error: int = 0
    """The `errno` of the system's error."""


def main() -> None:
    """Unpacks the input and prints the report. Raises OSError if this process cannot be confined."""
    folder, sha256 = Path(sys.argv[1]), sys.argv[2]
    end_with_parent(signal.SIGKILL)  # a worker that is killed leaves nobody who writes
    confine(folder)
    limit(os.fstat(0).st_size)
    try:
        with open(0, "rb", buffering=0, closefd=False) as file:
            unpack(file, folder, sha256=sha256)
        report = UnpackReport()
    except InvalidBundle as error:
        report = UnpackReport(invalid=error.message)
    except MemoryError:
        report = UnpackReport(invalid=f"its names need more than {MEMORY_BYTES >> 30} GiB of memory")
    except OSError as error:
        report = UnpackReport(error=error.errno or errno.EIO)
    os.write(1, report.to_json().encode())


def confine(folder: Path) -> None:
    """Has this process, which must have one thread, write below `folder` alone, and drop its privileges for ever.

    Raises OSError.
    """
    os.umask(0o077)
    privileges.drop()
    if landlock.abi():
        own = canonical(folder)
        landlock.restrict([(own, landlock.WRITE)], closed=[str(Path(own).parent)])


def cpu_seconds(size: int) -> int:
    """Returns the processor time that a tar of `size` bytes may take."""
    return _LEAST_CPU_S + size // _CPU_S_BYTES


def limit(size: int) -> None:
    """Limits what this process uses for a tar of `size` bytes. Beyond its time it ends by SIGXCPU. Raises OSError."""
    seconds = cpu_seconds(size)
    privileges.limit_resources()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def unpack(file: BinaryIO, folder: Path, *, sha256: str) -> None:
    """Unpacks a bundle into the empty `folder`, and makes all in it read-only.

    Raises InvalidBundle, also if the file has another digest, and OSError. What it has written by then stays.
    """
    source, size = _Hashed(file), os.fstat(file.fileno()).st_size
    root, entered = str(folder), list[str]()
    try:
        # The upload has its own caps. These bound what a damaged blob can cost.
        for member, chunks in read_members(source, max_bytes=size, max_files=max(MAX_BUNDLE_FILES, size // BLOCK)):
            *folders, _ = member.name.split("/")
            _go(root, entered, folders)
            entered = folders
            _write(f"{root}/{member.name}", member, chunks)
            failpoint("bundle.unpack")
    except InvalidBundle:
        _check_digest(source, sha256)  # damage explains whatever else is wrong
        raise
    _check_digest(source, sha256)
    _go(root, entered, [])
    folder.chmod(0o500)


class _Hashed:
    """Reads a file, and hashes what it has read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        chunk = self._file.read(size)
        self._digest.update(chunk)
        return chunk

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _check_digest(source: _Hashed, sha256: str) -> None:
    while source.read(1 << 20):
        pass
    if source.hexdigest() != sha256:
        raise InvalidBundle("it is damaged: its bytes have another digest")


def _go(root: str, left: list[str], entered: list[str]) -> None:
    """Goes from one folder to the next. Names are sorted: what is left is whole, and what is entered is new."""
    same = 0
    while same < min(len(left), len(entered)) and left[same] == entered[same]:
        same += 1
    for depth in range(len(left), same, -1):
        os.chmod("/".join((root, *left[:depth])), 0o500)  # noqa: PTH101 a million paths
    for depth in range(same, len(entered)):
        os.mkdir("/".join((root, *entered[: depth + 1])), 0o700)  # noqa: PTH102


def _write(path: str, member: Member, chunks: Generator[bytes]) -> None:
    descriptor = os.open(path, _NEW, member.mode & 0o500)
    try:
        for chunk in chunks:
            left = memoryview(chunk)
            while left:
                left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
