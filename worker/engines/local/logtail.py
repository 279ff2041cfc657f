"""The end of what a process of an attempt wrote to its stderr, as a report may quote it."""

from torchyard.contract.rundir import RunDir
from torchyard.contract.text import storable
from torchyard.contract.untrusted import read_tail

TAIL = 16_384
"""Bytes of a log that a report may quote."""


def quote(run: RunDir, source: str, *, offset: int = 0) -> str:
    """Of `source` (`launcher`, `rank-N`), from the bytes from `offset` on."""
    return storable(read_tail(run.log(source, "stderr"), TAIL, start=offset).decode("utf-8", "replace"))
