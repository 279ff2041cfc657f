"""Says how many working folders of scripts lie on this host, and what they take."""

from collections.abc import Iterator
from pathlib import Path

from torchyard.contract.attempts.rundir import WORK
from torchyard.host import terminal
from worker.doctor.findings import Finding, ok, warning
from worker.host import rundirs, workfolders

_MUCH = 0.5
"""The share of the used disk from which on it is worth a word."""


def check_folders(runs: Path, *, used: int) -> Iterator[Finding]:
    """`used`: bytes of the disk that are in use. Says nothing where there is no working folder."""
    folders = [runs / job_id / WORK for job_id in rundirs.by_job(runs) if workfolders.exists(runs / job_id)]
    if not folders:
        return
    sizes = {path.parent.name: rundirs.size(path, unlock=False) for path in folders}
    total, largest = sum(sizes.values()), max(sizes, key=lambda job_id: sizes[job_id])
    count = f"{len(folders)} working folder{'s' if len(folders) > 1 else ''}"
    fact = f"{count} of scripts: {terminal.size(total)}, the largest of {largest} ({terminal.size(sizes[largest])})"
    if total < _MUCH * used:
        yield ok("folders", fact)
    else:
        yield warning("folders", fact, "remove jobs (torchyard rm), or set TORCHYARD_FOLDER_RETENTION to less")
