"""`python -P -m trainer.data.hashing ROOT CACHE PARENT` hashes the files below ROOT whose names it reads from stdin.

Names end in a zero byte. For each it writes a record to stdout: 128 bits of the file's sha256 in hex, a space, the name
and a zero byte. The digests of files that did not change since they were hashed last are in the file CACHE. It runs
beside the training, with the lowest priority, ends with the process PARENT, and imports nothing that is large.
"""

from collections.abc import Iterable
import hashlib
import os
from pathlib import Path
import stat
import sys
import tempfile
import time
from typing import IO

UNREADABLE = "0" * 32
"""The digest of a file that cannot be read. Who trains on it says why."""
_CHUNK = 1 << 20
_MOST_CACHED_BYTES = 1 << 30
_KEEP_EVERY_S = 300.0
SETTLED_NS: int = 2_000_000_000
"""A file that was changed more recently may be changed again without another time: its digest is not kept."""

_Digests = dict[bytes, tuple[str, str]]
"""The identity of a file's content (device, inode, size, times) and its digest, by the file's name."""


def main() -> None:
    """Writes the records of the files that stdin names."""
    root, cache, parent = os.fsencode(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.nice(19)
    names = sys.stdin.buffer.read().split(b"\0")[:-1]
    write_records(names, root=root, cache=cache, parent=parent, out=sys.stdout.buffer)


def write_records(names: Iterable[bytes], *, root: bytes, cache: Path, parent: int, out: IO[bytes]) -> None:
    """Writes the record of each file, and keeps its digest in the cache. Stops early when the parent has ended."""
    known, kept = _read(cache), _Digests()
    kept_at = time.monotonic()
    for name in names:
        if os.getppid() != parent:
            return
        digest, identity = _hashed(os.path.join(root, name), known.get(name))  # noqa: PTH118 names are bytes
        out.write(b"%b %b\0" % (digest.encode(), name))
        if identity is not None:
            kept[name] = identity, digest
        if time.monotonic() - kept_at > _KEEP_EVERY_S:
            out.flush()
            _keep(cache, known | kept)
            kept_at = time.monotonic()
    out.flush()
    if kept != known:
        _keep(cache, kept)


def _hashed(path: bytes, known: tuple[str, str] | None) -> tuple[str, str | None]:
    """Returns the digest of a file, and what identifies its content: None if the digest must not be kept."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return UNREADABLE, None
    try:
        status = os.fstat(descriptor)
        identity = identity_of(status)
        if known is not None and known[0] == identity:
            return known[1], identity
        begun = time.time_ns()
        digest = _digest(descriptor, status)
        settled = max(status.st_mtime_ns, status.st_ctime_ns) < begun - SETTLED_NS
        return digest, identity if settled and identity_of(os.fstat(descriptor)) == identity else None
    except OSError:
        return UNREADABLE, None
    finally:
        os.close(descriptor)


def _digest(descriptor: int, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return UNREADABLE
    digest, left = hashlib.sha256(), status.st_size
    while left and (chunk := os.read(descriptor, min(left, _CHUNK))):  # not what is appended meanwhile
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()[: len(UNREADABLE)]


def identity_of(status: os.stat_result) -> str:
    """Returns a text that changes with the content of the file, unless it was changed within SETTLED_NS."""
    # A program can set a modification time, but not the time of the last change.
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(map(str, numbers))


def _read(cache: Path) -> _Digests:
    """Returns what was kept. It is empty if nothing was, or if the file is not one of ours."""
    try:
        descriptor = os.open(cache, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_CACHED_BYTES:
            return {}
        lines = (record.split(b" ", 2) for record in file.read(_MOST_CACHED_BYTES).split(b"\0")[:-1])
        whole = (line for line in lines if len(line) == 3 and len(line[1]) == len(UNREADABLE))
        return {
            name: (identity.decode("ascii", "replace"), digest.decode("ascii", "replace"))
            for identity, digest, name in whole
        }


def _keep(cache: Path, digests: _Digests) -> None:
    """Replaces the file at once, so that a reader finds the old or the new one whole."""
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache.parent, prefix=".", delete=False) as file:
            try:
                file.writelines(
                    b"%b %b %b\0" % (identity.encode(), digest.encode(), name)
                    for name, (identity, digest) in digests.items()
                )
                file.close()
                os.replace(file.name, cache)  # noqa: PTH105 it has a name, and no path
            except OSError:
                os.unlink(file.name)  # noqa: PTH108
                raise
    except OSError as error:
        sys.stderr.write(f"the digests of the data are not kept, and all is read before a resume: {error}\n")


if __name__ == "__main__":
    main()
