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
    times = {recorded_process.start_time for recorded_process in recorded.values() if recorded_process is not None}
    named = {as_recorded(item): item for item in processes if item.start_time in times}
    return {
        rank: named[recorded_process]
        for rank, recorded_process in recorded.items()
        if recorded_process is not None and recorded_process in named
    }


def has_signal(rank: ProcessIdentity, mask: str, number: signal.Signals) -> bool:
    """Returns whether the signal is in a mask of the process, as `/proc/PID/status` shows it. Raises OSError."""
    status = Path(f"/proc/{rank.pid}/status").read_bytes()  # the name in it may be no UTF-8
    match = re.search(rf"^{mask}:\s+([0-9a-f]+)$".encode(), status, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & (1 << (number - 1)))


def as_recorded(process: ProcessIdentity) -> ProcessIdentity:
    """Returns the process as it identifies itself."""
    with contextlib.suppress(OSError):  # it has ended
        match = _PIDS.search(Path(f"/proc/{process.pid}/status").read_bytes())
        if match is not None:
            return ProcessIdentity(pid=int(match[1]), start_time=process.start_time, boot_id=process.boot_id)
    return process
