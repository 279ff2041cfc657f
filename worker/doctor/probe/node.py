"""`python -P -m worker.doctor.probe.node FOLDER`: what one node of a probe job finds out. A task of Slurm runs it."""

import contextlib
from importlib import metadata
import os
from pathlib import Path
import platform
import socket
import sys
import time

from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.version import own_version
from torchyard.host.recordfiles import read_record, write_record
from worker.doctor.probe import meeting
from worker.doctor.probe.facts import Met, NodeFacts, ProbeFolder, ProbeRequest, Versions
from worker.engines.slurm import addresses
from worker.sandbox import levels
from worker.sandbox.levels import Isolation

_RANK = "SLURM_NODEID"


def main() -> int:
    folder, rank = ProbeFolder(Path(sys.argv[1])), int(os.environ[_RANK])
    request = read_record(folder.request, ProbeRequest)
    if request is None:
        sys.stderr.write(f"{socket.gethostname()}: {folder.request} is not there\n")
        return 1
    write_record(folder.facts(rank), find(folder, request, rank=rank))
    return 0


def find(folder: ProbeFolder, request: ProbeRequest, *, rank: int) -> NodeFacts:
    """Returns what the node finds out. Forks a child, so no other thread may run. Raises OSError."""
    isolation, no_isolation = _isolation(request)
    began, was_first = time.time(), _is_first(folder)
    address, no_address = _address(request)
    met = Met()
    if address is not None and request.nodes > 1:
        met = _meet(folder, request, address, rank=rank)
    return NodeFacts(
        rank=rank,
        host=socket.gethostname(),
        uid=os.geteuid(),
        versions=own_versions(),
        time=began,
        address=address,
        no_address=no_address,
        isolation=isolation,
        no_isolation=no_isolation,
        unusable={folder: why for folder in request.folders if (why := _why_unusable(folder)) is not None},
        was_first=was_first,
        met=met,
    )


def own_versions() -> Versions:
    """Returns what is installed here. Imports nothing of it."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "none"
    return Versions(python=platform.python_version(), torchyard=own_version(), torch=torch)


def _meet(folder: ProbeFolder, request: ProbeRequest, address: str, *, rank: int) -> Met:
    if rank == 0:
        return meeting.host(folder, request, address)
    return meeting.join(folder, request, address, rank=rank)


def _isolation(request: ProbeRequest) -> tuple[IsolationReport | None, str | None]:
    """Returns the node's level, or why no job starts there."""
    try:
        return levels.level_of(Isolation(request.isolation)), None
    except ConfigError as error:
        return None, error.message


def _address(request: ProbeRequest) -> tuple[str | None, str | None]:
    """Returns the node's address, or why it has none."""
    try:
        return addresses.of_node(request.interface)[1], None
    except ConfigError as error:
        return None, error.message


def _is_first(folder: ProbeFolder) -> bool:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(folder.first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return True
    return False


def _why_unusable(folder: str) -> str | None:
    try:
        os.scandir(folder).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
