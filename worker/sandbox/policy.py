"""What the processes of an attempt may touch: the system, Python, and what the operator allows, read-only; and writable
what is their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import os
from pathlib import Path

from torchyard.contract.attempts.records import Sandbox, Strict
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from worker.host.datafolders import ENVIRONMENTS, UNPACKED
from worker.sandbox import landlock
from worker.sandbox.landlock import DEVICE, READ, WRITE, Access
from worker.sandbox.opening import canonical
from worker.sandbox.shared import TEMPORARY, of_python, of_system, of_variables
from worker.sandbox.writable import AttemptFolders

_KERNEL = ("/proc", "/sys")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 what POSIX shared memory uses
_DEVICES = ("null", "zero", "full", "random", "urandom")
_TERMINALS = ("tty", "ptmx", "pts")
"""Only with mounts of its own: others are those of all processes of this user."""
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "infiniband", "gdrdrv")
_real_paths: dict[str, str] = {}
"""The paths of the system and of Python that exist, with links resolved."""
_TEMPORARIES = (TEMPORARY, Path("/var/tmp"))  # noqa: S108 as above


def sandbox_of(
    isolation: IsolationReport,
    *,
    run: RunDir,
    own_folders: AttemptFolders,
    readable: Sequence[Path],
    writable: Sequence[Path],
    gpus: bool,
    own: Sequence[Path] = (),
    checked: Sequence[str] = (),
    namespaces: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Sandbox | None:
    """Returns the sandbox of an attempt, or None if jobs are not isolated.

    `readable` and `writable`: what the operator allows. `gpus`: whether the attempt has any. `own`: what it reads
    besides, of its owner. `checked`: canonical paths that it reads besides, at which no link is followed any more.
    `namespaces`: whether it may make some. `environ`: the worker's variables, with the paths of libraries and shared
    caches.
    """
    if isolation.level == "off":
        return None
    caches = own_folders.home.parent
    closed = (run.root, caches, caches.with_name(ENVIRONMENTS), caches.with_name(UNPACKED))
    python = [*of_python((Path.home(), *closed))]
    shared = _known((*map(Path, _KERNEL), *of_system(), *python))
    temporary = canonical(own_folders.temporary)
    theirs = [*map(canonical, (*own, run.input))]
    work = [run.work] if run.work.is_dir() else []
    written = [*map(canonical, (run.job, *work, own_folders.home)), temporary]
    may_read = [*dict.fromkeys((*shared, *_paths((*of_variables(environ), *readable)), *checked)), *theirs]
    may_write = [*written, *_paths((_SHARED_MEMORY, *writable))]
    named = (run.root, *readable, *writable, *of_variables(environ), *(path.parent for path in python))
    may_replace = isolation.own_mounts and run.node is None  # ranks of several nodes look into ctl/ of each
    return Sandbox(
        landlock=isolation.level == "landlock",
        own_mounts=isolation.own_mounts,
        own_pids=isolation.own_mounts and isolation.own_pids,
        filtered=isolation.filtered,
        namespaces=namespaces,
        names_threads=gpus and isolation.filtered and (isolation.level == "landlock" or isolation.own_mounts),
        closed=list(map(canonical, closed)),
        data_dir=os.path.realpath(caches.parent),
        own=[*theirs, *written, *_known(python)],
        readable=may_read,
        writable=may_write,
        devices=_paths(_devices(gpus=gpus, terminals=isolation.own_mounts)),
        temporary=temporary,
        temporary_at=_replaced(temporary, (*may_read, *may_write), named) if may_replace else [],
        shown=[canonical(run.shown)],
    )


def install_sandbox(
    isolation: IsolationReport,
    *,
    data_dir: Path,
    folder: Path,
    readable: Sequence[Path],
    writable: Sequence[Path],
    temporary: Path,
) -> Sandbox:
    """Returns the sandbox of a process that installs packages. It reads the system and Python, and has the network.

    It is confined also where jobs are not: by Landlock, if the kernel has that. `folder`: has the installation. What it
    runs may replace nothing there, as only some folders below it are `readable` or `writable`.
    """
    python = [*of_python((Path.home(), folder))]
    paths = (*map(Path, _KERNEL), *of_system(), *python, *of_variables(os.environ))
    return Sandbox(
        landlock=landlock.abi() > 0,
        own_mounts=isolation.own_mounts,
        own_pids=isolation.own_mounts and isolation.own_pids,
        filtered=isolation.filtered,
        closed=[canonical(folder)],
        data_dir=os.path.realpath(data_dir),
        own=[*map(canonical, (*readable, *writable)), *_paths(python)],
        readable=[*_paths(paths), *map(canonical, readable)],
        writable=[*map(canonical, writable), *_paths([_SHARED_MEMORY] if isolation.own_mounts else [])],
        devices=_paths(_devices(gpus=False, terminals=isolation.own_mounts)),
        temporary=str(temporary),
    )


def strict_sandbox(strict: Strict, own_folders: AttemptFolders) -> Sandbox:
    """Returns the sandbox of an attempt that a helper starts."""
    return Sandbox(
        landlock=False,
        own_mounts=True,
        readable=[],
        writable=[],
        devices=[],
        temporary=str(own_folders.temporary),
        strict=strict,
    )


def rules(sandbox: Sandbox) -> list[tuple[str, Access]]:
    """Returns the sandbox as rules of Landlock."""
    writable = [temporary_in(sandbox) if path == sandbox.temporary else path for path in sandbox.writable]
    by_access = ((READ, sandbox.readable), (WRITE, writable), (DEVICE, sandbox.devices))
    return [(path, access) for access, paths in by_access for path in paths]


def temporary_in(sandbox: Sandbox) -> str:
    """Returns the path by which the processes in a sandbox find their temporary folder."""
    return sandbox.temporary_at[0] if sandbox.temporary_at else sandbox.temporary


def _replaced(temporary: str, opened: Iterable[str], named: Iterable[Path]) -> list[str]:
    """Returns the system's temporary folders that the attempt does not see: it has its own one there.

    What is `opened` below them is mounted inside, such as an installation or the data directory. One that is opened as
    a whole stays as it is, and so does one with a link on the way to a path by which the attempt's programs are
    `named`: it would not be there.
    """
    others = {f"{path}/" for path in opened if path != temporary}
    folders = [str(folder) for folder in _TEMPORARIES if folder.is_dir() and os.path.realpath(folder) == str(folder)]
    below = (str(path) for path in named if str(path).startswith(tuple(f"{folder}/" for folder in folders)))
    linked = [path for path in below if os.path.realpath(path) != path]
    return [
        folder
        for folder in folders
        if not any(f"{folder}/".startswith(path) for path in others)
        and not any(path.startswith(f"{folder}/") for path in linked)
    ]


def _devices(*, gpus: bool, terminals: bool) -> Iterator[Path]:
    device = Path("/dev")
    yield from (device / name for name in (*_DEVICES, *(_TERMINALS if terminals else ())))
    for pattern in _GPU_DEVICES if gpus else ():
        yield from device.glob(pattern)


def _known(paths: Iterable[Path]) -> list[str]:
    """Returns each existing path once, with links resolved, of what no job can change: each is looked up once."""
    names = [str(path) for path in paths]
    for name in names:
        if name not in _real_paths and os.path.exists(name):  # noqa: PTH110 a hundred paths for each attempt
            _real_paths[name] = os.path.realpath(name)
    return list(dict.fromkeys(_real_paths[name] for name in names if name in _real_paths))


def _paths(paths: Sequence[Path] | Iterator[Path]) -> list[str]:
    """Returns each existing path once, with links resolved: no job and no build may write where one of them lies."""
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if path.exists()))
