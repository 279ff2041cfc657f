"""Gives up the privileges of a process and of its descendants, root's too."""

import ctypes
import os
import resource

from torchyard.host.inspection import prctl

_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def drop() -> None:
    """Drops every capability for ever. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)  # so that root gets none back from the next program that it executes
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


def limit_resources() -> None:
    """Forbids core dumps: they hold the job's secrets. Allows as many open files as may be. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    raise_file_limit()


def raise_file_limit() -> None:
    """Allows as many open files as the user may have: data loaders of many processes need thousands. Raises OSError."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
