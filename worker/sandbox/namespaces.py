"""Mount namespaces: give an attempt mounts of its own, which end with its last process. See mount_namespaces(7).

All is read-only but what the attempt may write. Unlike Landlock, this covers modes, owners and times of files too. And
its `/dev/shm` is its own.
"""

from collections.abc import Sequence
import ctypes
import os
from pathlib import Path
import struct

from torchyard.contract import inspection

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MOUNT_SETATTR = 442
"""Number of the system call, the same on every architecture."""
_AT_FDCWD, _AT_RECURSIVE, _RDONLY = -100, 0x8000, 1
_SHM = "/dev/shm"  # noqa: S108 what POSIX shared memory uses

_libc = ctypes.CDLL(None, use_errno=True)


def enter_own_mounts(writable: Sequence[str]) -> None:
    """Moves this process to mounts of its own, where all but `writable` is read-only, with an empty `/dev/shm`.

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
    folder = Path.cwd()
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount("shm", _SHM, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, data="mode=1777")
    own = [path for path in writable if path != _SHM]
    for path in own:
        _mount(path, path, flags=_MS_BIND | _MS_REC)
    _set_read_only("/", _AT_RECURSIVE, read_only=True)
    for path in (_SHM, *own):
        _set_read_only(path, 0, read_only=False)
    os.chdir(folder)  # the mount of before would stay below this process


def is_allowed() -> bool:
    """Returns whether `enter_own_mounts` works on this host. Tries it in a child, so no other thread may run."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            inspection.permit()
            enter_own_mounts([])
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _mount(source: str, target: str, *, flags: int, kind: str = "", data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    _check(f"mount {target}", _libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def _set_read_only(path: str, flags: int, *, read_only: bool) -> None:
    """Sets or clears the attribute of the mount at `path`, as mount_setattr(2) does."""
    attributes = struct.pack("=QQQQ", _RDONLY if read_only else 0, 0 if read_only else _RDONLY, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(flags),
        ctypes.c_char_p(attributes),
        ctypes.c_size_t(len(attributes)),
    )
    _check(f"mount_setattr {path}", result)


def _check(call: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
