"""Lets programs name their threads where they can write nothing in `/proc`. CUDA does not start where it cannot.

The C library names another thread by a file of `/proc`. Neither a mount nor a rule of Landlock opens that file alone,
for all threads to come. So whoever opens one gets `/dev/null` instead: the thread keeps its name. Nothing more can be
had from who answers, so it may believe what it reads in the memory of the job.
"""

import contextlib
from dataclasses import dataclass
import errno
import fcntl
import os
import re
import struct
from typing import Self

from worker.sandbox import seccomp

_NAME = re.compile(rb"/proc/(?:self|thread-self|[0-9]+)/(?:task/[0-9]+/)?comm\0")
_LONGEST = 64
"""Bytes: more than such a name has."""
_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
"""SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND and SECCOMP_IOCTL_NOTIF_ADDFD."""
_CONTINUE, _AS_ANSWER = 1, 2
_CALL = struct.Struct("=QIIiIQ6Q")
"""A `struct seccomp_notif`: id, pid, flags, and of the call its number, architecture, place, and arguments."""
_GONE = (errno.ENOENT, errno.EINTR)


def is_allowed() -> bool:
    """Returns whether this host lets `Names` begin. Tries it in a child, so no other thread may run."""
    child = os.fork()
    if child == 0:
        os._exit(0 if Names.begin() is not None else 1)
    return os.waitpid(child, 0)[1] == 0


@dataclass(frozen=True)
class Names:
    """Answers the calls by which this process and its descendants open existing files for writing."""

    _listener: int
    _nothing: int
    """A descriptor of `/dev/null`."""

    @classmethod
    def begin(cls) -> Self | None:
        """Has those calls wait for `answer`. Returns None if the kernel has not that, or not once more."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(seccomp.listen(), nothing)
        except OSError:
            os.close(nothing)
            return None

    def answer(self) -> None:
        """Answers for ever. If that fails, so do the calls. This thread may open no existing file for writing."""
        try:
            while True:
                call = bytearray(_CALL.size)
                try:
                    fcntl.ioctl(self._listener, _RECEIVE, call, True)
                except OSError as error:
                    if error.errno in _GONE:  # who called has been killed
                        continue
                    raise
                self._answer(call)
        finally:
            self.close()

    def close(self) -> None:
        os.close(self._listener)
        os.close(self._nothing)

    def _answer(self, call: bytearray) -> None:
        number, pid, _, of_system, _, _, *arguments = _CALL.unpack(call)
        path, flags = seccomp.opened(of_system, arguments)
        with contextlib.suppress(OSError):  # who called has been killed
            if not self._names_thread(pid, path) or not self._give_nothing(number, flags):
                fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", number, 0, 0, _CONTINUE))

    def _names_thread(self, pid: int, address: int) -> bool:
        """Returns whether the text at this address of the process begins like the name of such a file."""
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it forbids its inspection
            return False
        try:
            return _NAME.match(os.pread(memory, _LONGEST, address)) is not None
        except (OSError, OverflowError):  # no such address
            return False
        finally:
            os.close(memory)

    def _give_nothing(self, number: int, flags: int) -> bool:
        given = struct.pack("=QIIII", number, _AS_ANSWER, self._nothing, 0, flags & os.O_CLOEXEC)
        try:
            fcntl.ioctl(self._listener, _ADD_DESCRIPTOR, given)
        except OSError:  # it has no number left for a descriptor, or the kernel is older than 5.14
            return False
        return True
