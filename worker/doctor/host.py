"""Checks the host itself: Python, the kernel, its limits, its clock."""

from collections.abc import Iterator
import ctypes
import os
from pathlib import Path
import platform
import resource
import sys

from torchyard.host import terminal
from worker.doctor.findings import Finding, failed, ok, warning

_PYTHON_FROM, _PYTHON_TO = (3, 11), (3, 13)
_SLOW_COOKIES_BEFORE = {(3, 11): 10, (3, 12): 6}
"""The patch version of each Python that reads cookies in linear time (CVE-2024-7592); 3.13 always did."""
_OPEN_FILES = 8192
_SHARED_MEMORY = 1 << 30
_PR_GET_CHILD_SUBREAPER = 37
_STA_UNSYNC, _TIME_ERROR = 0x40, 5

_libc = ctypes.CDLL(None, use_errno=True)


def check_host() -> Iterator[Finding]:
    yield check_python(sys.version_info[:3])
    yield _check_kernel()
    yield _check_open_files()
    yield _check_shared_memory(Path("/dev/shm"))  # noqa: S108 it is only read
    yield _check_clock()


def check_python(version: tuple[int, int, int]) -> Finding:
    """Checks the version of Python, which runs this program."""
    shown, series = ".".join(map(str, version)), version[:2]
    if not _PYTHON_FROM <= series <= _PYTHON_TO:
        return warning(
            "python", f"{shown} is not among the supported ones", "create the environment with Python 3.11 to 3.13"
        )
    fixed = _SLOW_COOKIES_BEFORE.get(series, 0)
    if version[2] < fixed:
        return warning(
            "python",
            f"{shown} reads cookies in a time that grows with the square of their length (CVE-2024-7592): the service"
            " leaves such cookies out, but web servers in jobs may not",
            f"update Python to {series[0]}.{series[1]}.{fixed} or later",
        )
    return ok("python", f"{shown}, {sys.executable}")


def _check_kernel() -> Finding:
    fact = f"{platform.system()} {platform.release()}"
    missing = [name for name, there in (("pidfd", _has_pidfd()), ("subreaper", _has_subreaper())) if not there]
    if not missing:
        return ok("kernel", f"{fact}: pidfd and subreaper")
    advice = "run Linux 5.3 or later; in a container, a runtime whose seccomp profile lets pidfd_open and prctl through"
    return failed("kernel", f"{fact}: no {' and no '.join(missing)}, which is needed to find a job's processes", advice)


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _has_subreaper() -> bool:
    return _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(ctypes.c_int()), 0, 0, 0) == 0


def _check_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    fact = f"{soft} in a process, up to {shown}"
    if hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES:
        return ok("open files", fact)
    advice = (
        f"allow {_OPEN_FILES}: LimitNOFILE={_OPEN_FILES} in a systemd unit, --ulimit nofile={_OPEN_FILES} of docker run"
    )
    return warning("open files", f"{fact}: too few for many watchers and data loaders", advice)


def _check_shared_memory(path: Path) -> Finding:
    advice = "docker run --shm-size=8g (Compose: shm_size), or mount -o remount,size=8G /dev/shm"
    try:
        status = os.statvfs(path)
    except OSError as error:
        return warning("shm", f"{path} does not exist: {error.strerror}", advice)
    total, free = status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail
    fact = f"{path} has {terminal.size(free)} free of {terminal.size(total)}"
    if free >= _SHARED_MEMORY:
        return ok("shm", fact)
    return warning("shm", f"{fact}: data loaders and NCCL end with a bus error when it is full", advice)


class _Timex(ctypes.Structure):
    """The first fields of the kernel's `struct timex`. `rest` is as large as all others."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )
    maxerror: int
    status: int


def _check_clock() -> Finding:
    advice = "start a time service: timedatectl set-ntp true, or chrony"
    clock = _Timex()
    state = _libc.adjtimex(ctypes.byref(clock))
    if state == -1:
        return warning(
            "clock", "unknown whether it is synchronised: the kernel does not say", "ask timedatectl on the host"
        )
    if state == _TIME_ERROR or clock.status & _STA_UNSYNC:
        return warning("clock", "not synchronised: times of different hosts cannot be compared", advice)
    return ok("clock", f"synchronised, within {clock.maxerror / 1000:.0f} ms")
