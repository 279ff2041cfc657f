"""Landlock: restricts what files a process and its descendants may touch, and whom they may signal. See landlock(7).

No root is needed. The restriction lasts for ever, and only ever gets narrower.
"""

from collections.abc import Callable, Sequence
import ctypes
from enum import IntFlag
import errno
from functools import reduce
from operator import or_
import os
import stat
import struct

from torchyard.host.inspection import prctl
from worker.sandbox.opening import Closed, closed_of, ways

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_SCOPES_SINCE = 6

_libc = ctypes.CDLL(None, use_errno=True)


class Access(IntFlag):
    """What may be done with files, as in `linux/landlock.h`."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_ALL = reduce(or_, Access)
READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
WRITE = ~(Access.IOCTL_DEV | Access.MAKE_CHAR | Access.MAKE_BLOCK)
DEVICE = Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE | Access.TRUNCATE | Access.IOCTL_DEV
_OF_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV
_SINCE = {2: Access.REFER, 3: Access.TRUNCATE, 5: Access.IOCTL_DEV}
"""Accesses that only kernels from this ABI on can restrict."""


def abi() -> int:
    """Returns the version of Landlock's interface that the kernel has, or 0 if it has none or forbids it."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def limits_of(*, closed: Sequence[str], data_dir: str = "", own: Sequence[str] = ()) -> Closed:
    """Returns what `restrict` opens to nobody: `/`, the folders `closed`, and the data directory but for `own`."""
    return closed_of(["/", *closed], data_dir=data_dir, own=own)


def restrict(rules: Sequence[tuple[str, Access]], *, closed: Sequence[str] = (), limits: Closed | None = None) -> None:
    """Allows this thread and its descendants only the accesses of `rules`, each to a file or all below a folder.

    Signals and abstract sockets reach only processes of the same restriction, where the kernel can see to it. The paths
    are canonical; one that does not exist is left out. Raises OSError, also if a path leads through a link, or is or
    contains `/` or a folder of `closed`. `limits`: in place of that, what `limits_of` returned before this process had
    mounts of its own, where other folders may have the names.
    """
    narrow = limits or limits_of(closed=closed)
    version = abi()
    handled = _handled(version)
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", handled, 0, scopes)[: 24 if version >= _SCOPES_SINCE else 8]
    ruleset = _call(_CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        with ways() as way:
            for path, access in rules:
                _add(ruleset, path, access & handled, lambda path: way.open_allowed(path, narrow))
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _handled(version: int) -> Access:
    """Returns the accesses that a kernel with this version can restrict."""
    lacking = [access for since, access in _SINCE.items() if version < since]
    return reduce(lambda handled, access: handled & ~access, lacking, _ALL)


def _add(ruleset: int, path: str, access: Access, open_allowed: Callable[[str], int]) -> None:
    try:
        opened = open_allowed(path)
    except FileNotFoundError:
        return
    except PermissionError as error:
        if error.errno == errno.EPERM:  # it is closed
            raise
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, opened)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_int(0))
    finally:
        os.close(opened)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
