"""Finds the ranks of an attempt that run."""

from collections.abc import Iterable
import contextlib
from pathlib import Path
import re
import signal

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.untrusted import read_untrusted

_PIDS = re.compile(rb"^NSpid:\s.*\b(\d+)$", re.MULTILINE)
"""A process's pids, by namespace. The last one is what it calls itself."""


def running_ranks(
    run: RunDir, processes: Iterable[ProcessIdentity], *, ranks: Iterable[int]
) -> dict[int, ProcessIdentity]:
    """Returns those of `ranks` that run, by number. A record that names none of `processes`, the attempt's, is ignored.

    A rank in a namespace of its own records the pid that it has there.
    """
    files = {rank: run.ranks / f"{rank}.json" for rank in ranks}
    recorded = {rank: read_untrusted(file, ProcessIdentity) for rank, file in files.items()}
    times = {found.start_time for found in recorded.values() if found is not None}
    named = {as_recorded(item): item for item in processes if item.start_time in times}
    return {rank: named[found] for rank, found in recorded.items() if found is not None and found in named}


def has_signal(rank: ProcessIdentity, mask: str, number: signal.Signals) -> bool:
    """Returns whether the signal is in a mask of the process, as `/proc/PID/status` shows it. Raises OSError."""
    status = Path(f"/proc/{rank.pid}/status").read_bytes()  # the name in it may be no UTF-8
    found = re.search(rf"^{mask}:\s+([0-9a-f]+)$".encode(), status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & (1 << (number - 1)))


def as_recorded(process: ProcessIdentity) -> ProcessIdentity:
    """Returns the process as it identifies itself."""
    with contextlib.suppress(OSError):  # it has ended
        found = _PIDS.search(Path(f"/proc/{process.pid}/status").read_bytes())
        if found is not None:
            return ProcessIdentity(pid=int(found[1]), start_time=process.start_time, boot_id=process.boot_id)
    return process
