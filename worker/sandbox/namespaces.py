"""Mount namespaces: give an attempt a `/dev/shm` of its own, which ends with its last process."""

import ctypes
import os
from pathlib import Path

from torchyard.contract import inspection

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def mount_own_shm() -> None:
    """Moves this process to a mount namespace with an empty `/dev/shm`.

    Without root, this needs a user namespace too; the process keeps its user there. It must have one thread, and permit
    its inspection. Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        _check("unshare", _libc.unshare(_CLONE_NEWNS))
    except PermissionError:
        _check("unshare", _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(b"none", b"/", b"", _MS_REC | _MS_PRIVATE)
    _mount(b"shm", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV)


def is_allowed() -> bool:
    """Returns whether `mount_own_shm` works on this host. Tries it in a child, so no other thread may run."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            inspection.permit()
            mount_own_shm()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _mount(source: bytes, target: bytes, kind: bytes, flags: int) -> None:
    _check("mount", _libc.mount(source, target, kind, ctypes.c_ulong(flags), b"mode=1777" if kind else None))


def _check(call: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
