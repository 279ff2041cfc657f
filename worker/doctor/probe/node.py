"""`python -P -m worker.doctor.probe.node FOLDER`: what one node of a probe job finds out. A task of Slurm runs it."""

import contextlib
from importlib import metadata
import os
from pathlib import Path
import platform
import socket
import sys
import time

from torchyard.contract.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.version import own_version
from torchyard.host.recordfiles import read_record, write_record
from worker.doctor.probe import meeting
from worker.doctor.probe.facts import NodeFacts, ProbeFolder, ProbeRequest
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
    met = meeting.Met()
    if address is not None and request.nodes > 1:
        met = _meet(folder, request, address, rank=rank)
    return NodeFacts(
        rank=rank,
        host=socket.gethostname(),
        uid=os.geteuid(),
        python=platform.python_version(),
        torchyard=own_version(),
        torch=version_of("torch"),
        time=began,
        address=address,
        no_address=no_address,
        isolation=isolation,
        no_isolation=no_isolation,
        unusable={folder: why for folder in request.folders if (why := _why_unusable(folder)) is not None},
        was_first=was_first,
        locks=met.locks,
        no_locks=met.no_locks,
        reached=[*met.reached],
    )


def _meet(folder: ProbeFolder, request: ProbeRequest, address: str, *, rank: int) -> meeting.Met:
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


def version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
