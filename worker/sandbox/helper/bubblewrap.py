"""The options of bubblewrap for an attempt. See bwrap(1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
import sys

from worker.sandbox import naming
from worker.sandbox.strict import inside
from worker.sandbox.strict.protocol import Network

_NAMESPACES = ("user", "pid", "ipc", "uts")
_SYS = ("/sys/bus", "/sys/class", "/sys/devices")
"""What NCCL reads of the machine. Nothing of kernel and cgroups is among it."""


@dataclass(frozen=True, kw_only=True)
class Bind:
    """What is at `source` outside is at `target` inside."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class Box:
    """What an attempt gets."""

    env: Mapping[str, str]
    cwd: str
    network: Network
    shm: int
    """Bytes."""
    system: Sequence[Path]
    """Existing files and folders, the same for every job, that its user can read outside."""
    binds: Sequence[Bind] = ()
    """Outer ones first."""
    devices: Sequence[str] = ()
    files: Mapping[str, int] = field(default_factory=dict[str, int])
    """Small files, each with the descriptor that has its content."""
    filter: int | None = None
    """The descriptor that has the filter of system calls."""


def options(box: Box, *, info: int | None = None) -> list[str]:
    """Returns all options that come before the command. bubblewrap says in the descriptor `info` what it started."""
    return [*_namespaces(box), *_mounts(box), *_process(box, info)]


def command(box: Box, argv: Sequence[str]) -> list[str]:
    """Returns what runs inside: what forks the door, and then is `argv`.

    With devices and a filter it runs below a program by which CUDA can name threads.
    """
    return [
        *((sys.executable, "-P", "-I", "-m", naming.__name__) if box.devices and box.filter is not None else ()),
        *(sys.executable, "-I", "-S", inside.__file__),
        *argv,
    ]


def _namespaces(box: Box) -> Iterator[str]:
    yield from (f"--unshare-{name}" for name in _NAMESPACES)
    yield "--unshare-cgroup-try"
    if box.network == "none":
        yield "--unshare-net"
    yield from ("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent")


def _mounts(box: Box) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from ("--perms", "1777", "--size", str(box.shm), "--tmpfs", "/dev/shm")  # noqa: S108 POSIX shared memory's
    yield from (part for node in box.devices for part in ("--dev-bind", node, node))
    for path in box.system:
        if path.is_symlink() and path.parent == Path("/"):
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            yield from ("--ro-bind", str(path), str(path))
    yield from (part for path in _SYS for part in ("--ro-bind-try", path, path))
    for path, descriptor in box.files.items():
        yield from ("--ro-bind-data", str(descriptor), path)
    for bind in box.binds:
        yield from ("--bind" if bind.writable else "--ro-bind", bind.source, bind.target)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")  # files there would take memory without a limit
    yield from ("--remount-ro", "/proc")  # some settings there are open to all users


def _process(box: Box, info: int | None) -> Iterator[str]:
    yield "--clearenv"
    yield from (part for name, value in box.env.items() for part in ("--setenv", name, value))
    yield from ("--chdir", box.cwd)
    if box.filter is not None:
        yield from ("--seccomp", str(box.filter))
    if info is not None:
        yield from ("--info-fd", str(info))
