"""Mounts of folders with other owners: who owns a file there depends on the mount. See mount_setattr(2).

They need root, and a file system that supports idmapped mounts.
"""

from collections.abc import Generator
from contextlib import contextmanager
import ctypes
import errno
import os
from pathlib import Path
import struct

_MOUNT_SETATTR, _OPEN_TREE, _MOVE_MOUNT = 442, 428, 429
"""Numbers of the system calls, the same on every architecture."""
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_RDONLY, _NOSUID, _NODEV, _IDMAP = 1, 2, 4, 0x00100000
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19
_REFUSED = {errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}

_libc = ctypes.CDLL(None, use_errno=True)


class IdmapRefused(OSError):
    """The kernel or the file system has no mounts with other owners."""


@contextmanager
def owners_swapped(inside: tuple[int, int], outside: tuple[int, int]) -> Generator[int]:
    """Yields a user namespace for `clone`: files of the user and group `outside` show as those of `inside`.

    Everything else belongs to nobody there. Forks, so no other thread may run. Raises OSError.
    """
    ready, go = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _wait_in_user_namespace(ready[1], go)
    try:
        os.close(ready[1])
        if not os.read(ready[0], 1):
            raise OSError(errno.EPERM, "user namespaces are not allowed")
        for name, inner, outer in zip(("uid_map", "gid_map"), inside, outside, strict=True):
            Path(f"/proc/{child}/{name}").write_text(f"{outer} {inner} 1")
        namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready[0], *go):
            os.close(descriptor)
        os.waitpid(child, 0)
    try:
        yield namespace
    finally:
        os.close(namespace)


def clone(source: int, *, owners: int | None = None, read_only: bool) -> int:
    """Returns a new mount, attached nowhere, of the file or folder that the descriptor `source` has open.

    `owners`: a namespace from `owners_swapped`. Without it, what is mounted below the folder comes along. Raises
    OSError, and IdmapRefused if the file system cannot swap owners.
    """
    recursive = 0 if owners is not None else _AT_RECURSIVE
    flags = _AT_EMPTY_PATH | _OPEN_TREE_CLONE | os.O_CLOEXEC | recursive
    mount = _call("open_tree", _OPEN_TREE, ctypes.c_int(source), ctypes.c_char_p(b""), ctypes.c_uint(flags))
    attributes = _NOSUID | _NODEV | (_RDONLY if read_only else 0) | (_IDMAP if owners is not None else 0)
    packed = struct.pack("=QQQQ", attributes, 0, 0, owners or 0)
    try:
        _call(
            "mount_setattr",
            _MOUNT_SETATTR,
            ctypes.c_int(mount),
            ctypes.c_char_p(b""),
            ctypes.c_uint(_AT_EMPTY_PATH | recursive),
            ctypes.c_char_p(packed),
            ctypes.c_size_t(len(packed)),
        )
    except OSError as error:
        os.close(mount)
        if owners is not None and error.errno in _REFUSED:
            raise IdmapRefused(error.errno, "its file system has no idmapped mounts") from None
        raise
    return mount


def attach(mount: int, target: Path) -> None:
    """Attaches what `clone` returned at an existing file or folder. Raises OSError."""
    _call(
        "move_mount",
        _MOVE_MOUNT,
        ctypes.c_int(mount),
        ctypes.c_char_p(b""),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
    )


def enter_private(staging: Path) -> None:
    """Moves this process to mounts of its own, with an empty file system in memory at `staging`. Raises OSError."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise _error("unshare")
    _mount("none", "/", flags=_MS_REC | _MS_SLAVE)
    _mount("staging", str(staging), kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC, data="mode=711,size=1m")


def _wait_in_user_namespace(ready: int, go: tuple[int, int]) -> None:
    """Says in `ready` that this child is in a new user namespace, and ends when `go` is closed."""
    try:
        os.close(go[1])
        if _libc.unshare(_CLONE_NEWUSER) == 0:
            os.write(ready, b"x")
            os.read(go[0], 1)
    finally:
        os._exit(0)


def _mount(source: str, target: str, *, flags: int, kind: str = "", data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    if _libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]) != 0:
        raise _error(f"mount {target}")


def _call(name: str, number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise _error(name)
    return result


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
