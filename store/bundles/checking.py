"""Checks a whole upload: here if it is small, else in a process of its own, as a million names take a minute.

`python -P -m store.bundles.checking MAX_FILES MAX_BYTES` is that process, with the tar as its input. It has the API's
user, a lower priority, limits of time and memory, and no secret in its variables. It prints a `_Result`, and then the
parts.
"""

from dataclasses import dataclass
import errno
import hashlib
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
from typing import BinaryIO

from torchyard.contract.bundles.tar import BundleContents, Readable, verify
from torchyard.contract.errors import InvalidBundle
from torchyard.contract.wire.codec import Record
from torchyard.host.parent import end_with_parent

APART_BYTES = 8 << 20
"""A tar of more bytes is checked by another process. One of as many has 16,000 files at most."""
MEMORY_BYTES = 1 << 30
"""Most of it are hashes of names: a million take 100 MB."""

_LEAST_CPU_S = 60
_CPU_S_BYTES = 4 << 20
"""Bytes of the tar that allow a further second. Of the smallest files, 8,000 take a quarter of it."""
_CHUNK = 1 << 20
_ENVIRONMENT = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True, kw_only=True)
class _Result(Record):
    files: int = 0
    bytes: int = 0
    sha256: str = ""
    invalid: str = ""
    """What is wrong with the tar."""
    error: int = 0
    """The `errno` of the system's error."""


def check(path: Path, *, sha256: str, size: int, max_files: int, max_bytes: int) -> BundleContents:
    """Reads the whole file. Raises InvalidBundle if it is not the bundle of that digest, and OSError."""
    with path.open("rb", buffering=0) as file:
        if size <= APART_BYTES:
            result, parts = _check(file, max_files=max_files, max_bytes=max_bytes)
        else:
            result, parts = _check_apart(file, size, max_files=max_files, max_bytes=max_bytes)
    if result.error:
        raise OSError(result.error, os.strerror(result.error), str(path))
    if result.sha256 and result.sha256 != sha256:
        raise InvalidBundle(f"the received bundle has the sha256 {result.sha256}: it was deleted, send it again")
    if result.invalid:
        raise InvalidBundle(result.invalid)
    return BundleContents(result.files, result.bytes, parts)


def main() -> None:
    """Checks the input and prints what it found."""
    end_with_parent(signal.SIGKILL)
    os.nice(5)
    size = os.fstat(0).st_size
    seconds = _LEAST_CPU_S + size // _CPU_S_BYTES
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    parts = b""
    try:
        with open(0, "rb", buffering=0, closefd=False) as file:
            result, parts = _check(file, max_files=int(sys.argv[1]), max_bytes=int(sys.argv[2]))
    except MemoryError:
        result = _Result(invalid=f"its names need more than {MEMORY_BYTES >> 30} GiB of memory")
    except OSError as error:
        result = _Result(error=error.errno or errno.EIO)
    with open(1, "wb", closefd=False) as out:
        out.write(result.to_json().encode() + b"\n" + parts)


def _check_apart(file: BinaryIO, size: int, *, max_files: int, max_bytes: int) -> tuple[_Result, bytes]:
    command = [sys.executable, "-P", "-m", "store.bundles.checking", str(max_files), str(max_bytes)]
    variables = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, env=variables, check=False)
    if done.returncode == -signal.SIGXCPU:
        return _Result(invalid=f"it takes more than {_LEAST_CPU_S + size // _CPU_S_BYTES} s of processor time"), b""
    if done.returncode:
        raise OSError(errno.EIO, f"the process that checks an upload ended with {done.returncode}")
    head, _, parts = done.stdout.partition(b"\n")
    return _Result.from_json(head), parts


def _check(file: BinaryIO, *, max_files: int, max_bytes: int) -> tuple[_Result, bytes]:
    reader = _Digesting(file)
    try:
        contents = verify(reader, max_files=max_files, max_bytes=max_bytes, needs_parts=True)
    except InvalidBundle as error:
        return _Result(invalid=error.message, sha256=reader.digest()), b""
    return _Result(files=contents.files, bytes=contents.bytes, sha256=reader.digest()), contents.parts


class _Digesting:
    def __init__(self, file: Readable) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        return data

    def digest(self) -> str:
        """Reads to the end, and returns the sha256 of all."""
        while self.read(_CHUNK):
            pass
        return self._digest.hexdigest()


if __name__ == "__main__":
    main()
