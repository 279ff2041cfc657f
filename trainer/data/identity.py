"""What tells the data of a source from other data, as far as every rank knows it once the data is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import os
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Data in memory is known by its values. Files that are read while the run trains are known by name and size."""

    digest: str
    """Of the values in memory, or of the names and sizes of the files. It is the same on every machine."""
    root: Path | None = None
    """The source. None: it is no file."""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the values of each file below `root`, if they are in memory. The name of `root` itself is `.`."""
    files: tuple[str, ...] = ()
    """The sorted names of the files below `root` that are not in memory: their bytes are still to be hashed."""


def records(digests: Mapping[str, str]) -> bytes:
    """Returns a record for each file, as `trainer.data.hashing` writes them."""
    return b"".join(record(os.fsencode(name), digest) for name, digest in sorted(digests.items()))


def record(name: bytes, digest: str) -> bytes:
    """Returns the record of one file: no name contains a zero byte."""
    return b"%b %b\0" % (digest.encode(), name)


def read_records(content: bytes) -> dict[str, str]:
    """Returns the digests by the names of the files. A torn record at the end is left out."""
    whole = content.split(b"\0")[:-1]
    pairs = (line.partition(b" ") for line in whole)
    return {os.fsdecode(name): digest.decode() for digest, _, name in pairs}
