"""Reads the end of the stderr of a process of an attempt, for a report."""

from torchyard.contract.rundir import RunDir
from torchyard.contract.text import storable
from torchyard.contract.untrusted import read_tail

TAIL = 16_384
"""The most bytes of a log that a report quotes."""


def tail_of_stderr(run: RunDir, source: str, *, offset: int = 0) -> str:
    """Returns the end of the stderr of `source` (`launcher`, `rank-N`), at most from `offset` on."""
    return storable(read_tail(run.log(source, "stderr"), TAIL, start=offset).decode("utf-8", "replace"))
