"""A filter of system calls, for what neither Landlock nor capabilities restrict. See seccomp(2).

The kernel's keyrings belong to a user, so a job would have those of the service. A program that sets the user ID would
give the service's user to everybody on the host who can execute it. Two processes that stop each other at their end
could never be killed. Limits and priorities of a process can be set by every process of the same user: without a pid
namespace, a job may set only its own. A process is root in a user namespace of its own, and reaches much more of the
kernel there: unless the operator allows that, a job gets none. Whoever opens a file on which a process of the same user
has a lease waits for that process, the service too. Some families of sockets know no network namespaces.

A second filter has a call wait until another process answers it: see seccomp_unotify(2).
"""

from collections.abc import Iterator, Sequence
import ctypes
from dataclasses import dataclass
import errno
from functools import cache
import os
import stat
import struct

from torchyard.host.inspection import prctl

_PR_GET_SECCOMP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 21, 22, 38, 2
_SET_MODE_FILTER, _NEW_LISTENER, _ONLY_KILLED = 1, 1 << 3, 1 << 5
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ASK, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`."""
_X32 = 0x40000000
"""Begins the numbers of the x32 calls, which x86-64 has besides."""
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
_PTRACE_REQUESTS, _PTRACE_O_TRACEEXIT = (0x4206, 0x4200, 21), 0x40
"""PTRACE_SEIZE, PTRACE_SETOPTIONS and PTRACE_OLDSETOPTIONS, with the option that stops a process at its end."""
_CLONE_NEWUSER = 0x10000000
_CLONE3 = 435
"""On every architecture. A filter does not see its flags. The C library does without."""
_F_SETLEASE = 1024
_BESIDE_THE_NETWORK = (40, 42)
"""AF_VSOCK and AF_QIPCRTR, which no network namespace bounds: they reach the host of a virtual machine, and modems."""
_HIDDEN = (425, 437)
"""io_uring_setup and openat2, on every architecture: a filter does not see what they open. Programs do without."""


@dataclass(frozen=True)
class _Machine:
    """The numbers of an architecture: its own in `linux/audit.h`, and those of its system calls."""

    audit: int
    seccomp: int
    opens: tuple[tuple[int, int], ...]
    """The calls that open a file, each with the argument that has the flags."""
    keyrings: tuple[int, int, int]
    modes: tuple[tuple[int, int], ...]
    """The calls that set the mode of a file, each with the argument that has the mode."""
    ptrace: int
    fcntl: int
    socket: int
    unshares: tuple[int, int]
    """unshare and clone: their first argument has the flags."""
    setns: int
    by_pid: tuple[int, ...]
    """prlimit64, sched_setparam, sched_setscheduler, sched_setattr: their first argument is a pid, 0 for one's own."""
    by_who: tuple[tuple[int, int], ...]
    """setpriority and ioprio_set, each with the kind that means all processes of a user. Their second argument is a
    pid, 0 for one's own."""
    reaching: tuple[int, ...]
    """creat where there is one, socketpair, execve, execveat, open_by_handle_at, kill, tkill, tgkill and
    pidfd_send_signal."""


_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        seccomp=317,
        opens=((2, 1), (257, 2)),
        keyrings=(248, 249, 250),
        modes=((2, 2), (85, 1), (90, 1), (91, 1), (133, 1), (257, 3), (259, 2), (268, 2), (452, 2)),
        ptrace=101,
        fcntl=72,
        socket=41,
        unshares=(272, 56),
        setns=308,
        by_pid=(302, 142, 144, 314),
        by_who=((141, _PRIO_USER), (251, _IOPRIO_WHO_USER)),
        reaching=(85, 53, 59, 322, 304, 62, 200, 234, 424),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        seccomp=277,
        opens=((56, 2),),
        keyrings=(217, 218, 219),
        modes=((33, 2), (52, 1), (53, 2), (56, 3), (452, 2)),
        ptrace=117,
        fcntl=25,
        socket=198,
        unshares=(97, 220),
        setns=268,
        by_pid=(261, 118, 119, 274),
        by_who=((140, _PRIO_USER), (30, _IOPRIO_WHO_USER)),
        reaching=(199, 221, 281, 265, 129, 130, 131, 424),
    ),
}


_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_allowed() -> bool:
    """Returns whether this host has filters, for a machine whose numbers are known."""
    if os.uname().machine not in _MACHINES:
        return False
    try:
        prctl(_PR_GET_SECCOMP)
    except OSError:
        return False
    return True


def restrict(*, others: bool, namespaces: bool = False) -> None:
    """Denies what `program` denies, to this process and its descendants, for ever. Raises OSError."""
    code = program(others=others, namespaces=namespaces)
    filtered = _Program(len(code) // 8, code)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filtered))


def close() -> None:
    """Denies this process files that are not open yet, sockets, programs and signals, for ever. Raises OSError."""
    restrict(others=True)
    machine = _MACHINES[os.uname().machine]
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_EQUAL, machine.audit, if_true=1), _deny(errno.ENOSYS)]
    code.append(_instruction(_LOAD, _NUMBER))
    for number in (*(number for number, _ in machine.opens), machine.socket, *machine.reaching):
        code += _when(_EQUAL, number, [_deny(errno.EACCES)])
    joined = b"".join([*code, _allow()])
    filtered = _Program(len(joined) // 8, joined)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filtered))


def listen() -> int:
    """Has each call that opens an existing file for writing wait for an answer, here and in descendants, for ever.

    Returns the descriptor from which the calls are read. While nobody has it, they fail. Raises OSError, also if this
    process has such a filter already.
    """
    machine, code = _MACHINES[os.uname().machine], asking_program()
    filtered = _Program(len(code) // 8, code)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for flags in (_NEW_LISTENER | _ONLY_KILLED, _NEW_LISTENER):  # only Linux 5.19 keeps signals from ending the wait
        numbers = map(ctypes.c_ulong, (_SET_MODE_FILTER, flags))
        listener = int(_libc.syscall(machine.seccomp, *numbers, ctypes.byref(filtered)))
        if listener >= 0:
            return listener
    number = ctypes.get_errno()
    raise OSError(number, f"seccomp: {os.strerror(number)}")


def opened(number: int, arguments: Sequence[int]) -> tuple[int, int]:
    """Returns where the process has the path that a call of `listen` opens, and the flags of the call."""
    flags = dict(_MACHINES[os.uname().machine].opens)[number]
    return arguments[flags - 1], arguments[flags]


@cache
def asking_program() -> bytes:
    """Returns the filter of `listen`. What may create the file is no such call."""
    machine = _MACHINES[os.uname().machine]
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_EQUAL, machine.audit, if_true=1), _allow()]
    code.append(_instruction(_LOAD, _NUMBER))
    for number, argument in machine.opens:
        flags = _instruction(_LOAD, _ARGUMENTS + 8 * argument)
        creates, writes = _when(_ANY_BIT, os.O_CREAT, [_allow()]), _when(_ANY_BIT, os.O_ACCMODE, [_ask()])
        code += _when(_EQUAL, number, [flags, *creates, *writes, _allow()])
    return b"".join([*code, _allow()])


@cache
def program(*, others: bool, namespaces: bool = False) -> bytes:
    """Returns the filter, as `struct sock_filter` in a row.

    It denies keyrings, leases, programs that set the user ID, stops at the end of a traced process, sockets that no
    network namespace bounds, calls that hide these, and those of another architecture. With `others`, also limits and
    priorities of other processes. Without `namespaces`, also new user namespaces, and the entry of others.
    """
    return b"".join(_instructions(_MACHINES[os.uname().machine], others=others, namespaces=namespaces))


def _instructions(machine: _Machine, *, others: bool, namespaces: bool) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, machine.audit, if_true=1)
    yield _deny(errno.ENOSYS)
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_AT_LEAST, _X32, if_false=1)
    yield _deny(errno.ENOSYS)
    for number in machine.keyrings:
        yield from _when(_EQUAL, number, [_deny(errno.EPERM)])
    for number in _HIDDEN if namespaces else (*_HIDDEN, _CLONE3):
        yield from _when(_EQUAL, number, [_deny(errno.ENOSYS)])
    for number in () if namespaces else machine.unshares:
        yield from _when(_EQUAL, number, [*_deny_bits(0, _CLONE_NEWUSER), _allow()])
    for number in () if namespaces else (machine.setns,):
        yield from _when(_EQUAL, number, [_deny(errno.EPERM)])
    for number, argument in machine.modes:
        yield from _when(_EQUAL, number, [*_deny_bits(argument, stat.S_ISUID), _allow()])
    stops = [_instruction(_LOAD, _ARGUMENTS)]
    for request in _PTRACE_REQUESTS:
        stops += _when(_EQUAL, request, [*_deny_bits(3, _PTRACE_O_TRACEEXIT), _allow()])
    yield from _when(_EQUAL, machine.ptrace, [*stops, _allow()])
    commands = [_instruction(_LOAD, _ARGUMENTS + 8), *_when(_EQUAL, _F_SETLEASE, [_deny(errno.EPERM)]), _allow()]
    yield from _when(_EQUAL, machine.fcntl, commands)
    families = [_instruction(_LOAD, _ARGUMENTS)]
    for family in _BESIDE_THE_NETWORK:
        families += _when(_EQUAL, family, [_deny(errno.EAFNOSUPPORT)])
    yield from _when(_EQUAL, machine.socket, [*families, _allow()])
    for number in machine.by_pid if others else ():
        yield from _when(_EQUAL, number, [*_deny_other(0), _allow()])
    for number, user in machine.by_who if others else ():
        every = [_instruction(_LOAD, _ARGUMENTS), *_when(_EQUAL, user, [_deny(errno.EPERM)])]
        yield from _when(_EQUAL, number, [*every, *_deny_other(1), _allow()])
    yield _allow()


def _when(comparison: int, value: int, then: list[bytes]) -> list[bytes]:
    """Returns the instructions `then`, which run only if the loaded value compares so."""
    return [_instruction(comparison, value, if_false=len(then)), *then]


def _deny_other(argument: int) -> list[bytes]:
    """Returns what denies the call unless its argument, a pid, is 0. The kernel reads its lower half alone."""
    return [_instruction(_LOAD, _ARGUMENTS + 8 * argument), _instruction(_EQUAL, 0, if_true=1), _deny(errno.EPERM)]


def _deny_bits(argument: int, bits: int) -> list[bytes]:
    """Returns what denies the call if its argument has one of the bits, which are in its lower half."""
    return [_instruction(_LOAD, _ARGUMENTS + 8 * argument), *_when(_ANY_BIT, bits, [_deny(errno.EPERM)])]


def _deny(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _ask() -> bytes:
    return _instruction(_RETURN, _ASK)


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Returns a `struct sock_filter`: the jumps skip so many instructions."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
