"""Reads the end of the stderr of a process of an attempt, for a report."""

from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.wire.text import storable
from torchyard.host.untrusted import read_tail
from worker.host.overwriting import newest_part

TAIL = 16_384
"""The most bytes of a log that a report quotes."""
_MOST_READ = 1 << 18
"""Bytes of which it may be the end: progress bars leave little of theirs."""


def tail_of_stderr(run: RunDir, source: str, *, offset: int = 0) -> str:
    """Returns the end of the stderr of `source` (`launcher`, `rank-N`), at most from `offset` on.

    Of a line with a `\\r`, such as a progress bar, it has the newest part alone.
    """
    raw = read_tail(run.log(source, "stderr"), _MOST_READ, start=offset)
    shown = b"\n".join(line[slice(*newest_part(line))] for line in raw.split(b"\n"))
    return storable(shown[-TAIL:].decode("utf-8", "replace"))
