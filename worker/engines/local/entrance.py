"""The entrance of an attempt: a socket of its supervisor, at which the worker brings connections for its sandbox.

A caller sends a key, the length of its message in four bytes, and the message: a `Call`. Then the connection goes to
the door, which is in the sandbox. The key lies where no job can read it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
import hmac
import os
import secrets
import socket
import struct
import time

from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError
from torchyard.contract.reach.orders import LONGEST_CALL, Call
from torchyard.host import unix_sockets
from worker.host import process
from worker.sandbox.door.refusal import refuse

_KEY_BYTES = 32
_LENGTH = struct.Struct("!I")
_HEAD = _KEY_BYTES + _LENGTH.size
_CALLER_S = 5.0
"""How long a caller may take to say what it wants, and the supervisor to look at it."""
_AT_ONCE = 8
"""Callers that are let in in one turn, at most."""
_MOST_WAITING = 32
"""Callers that have not said all, at most."""
_STOP = b"stop"
_BUFFER = 4 * LONGEST_CALL
"""Bytes of calls that may wait for the door."""


def reach(run: RunDir, call: Call) -> socket.socket:
    """Returns a connection to the handler of what is called. Raises OSError, and ConfigError for an attempt that has no
    entrance."""
    try:
        key = run.door_key.read_bytes()
    except FileNotFoundError:
        raise ConfigError("nothing can be started in this attempt: its worker was too old when it began") from None
    content = call.to_json().encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CALLER_S)
        with unix_sockets.address_of(run.door) as address:
            connection.connect(address)
        connection.sendall(key + _LENGTH.pack(len(content)) + content)
        connection.settimeout(None)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise ConnectionRefusedError("the attempt has ended: nothing can be started in it") from None
    except BaseException:
        connection.close()
        raise
    return connection


@dataclass
class _Caller:
    """Who has connected, and not said all."""

    connection: socket.socket
    content: bytearray = field(default_factory=bytearray)
    deadline: float = field(default_factory=lambda: time.monotonic() + _CALLER_S)

    def read(self, key: bytes) -> bytes | None:
        """Returns the message, or None as long as it is not whole. Raises OSError for who may not come in."""
        head = _HEAD if len(self.content) < _HEAD else _HEAD + self._length()
        try:
            content = self.connection.recv(head - len(self.content))
        except BlockingIOError:
            if time.monotonic() > self.deadline:
                raise TimeoutError from None
            return None
        self.content += content
        if not content or (len(self.content) >= _HEAD and not self._may_come_in(key)):
            raise PermissionError
        whole = len(self.content) >= _HEAD and len(self.content) == _HEAD + self._length()
        return bytes(self.content[_HEAD:]) if whole else None

    def _length(self) -> int:
        return _LENGTH.unpack_from(self.content, _KEY_BYTES)[0]

    def _may_come_in(self, key: bytes) -> bool:
        return hmac.compare_digest(self.content[:_KEY_BYTES], key) and 0 < self._length() <= LONGEST_CALL


class Entrance:
    """The supervisor's side. Callers wait until it has a way to the door. Raises OSError."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._callers: list[_Caller] = []
        for path in (run.door, run.door_key):  # of an earlier supervisor of this attempt
            path.unlink(missing_ok=True)
        descriptor = os.open(run.door_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(descriptor, self._key)
        os.close(descriptor)
        self._calls: socket.socket | None = None
        self._listener = unix_sockets.listen(run.door)

    def pair(self) -> socket.socket:
        """Returns what the door reads from. No other process may have it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.use(ours)
        return theirs

    def use(self, calls: socket.socket) -> None:
        """Takes the way to the door."""
        calls.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self._calls = calls

    def descriptors(self) -> Sequence[int]:
        """Returns descriptors that become readable when `let_in` has something to do."""
        own = [] if self._calls is None else [self._listener.fileno()]
        return [*own, *(each.connection.fileno() for each in self._callers)]

    def let_in(self) -> None:
        """Brings the callers in that have said all. Never waits."""
        for _ in range(0 if self._calls is None else min(_AT_ONCE, _MOST_WAITING - len(self._callers))):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody is left, or there is no descriptor for them now
                break
            connection.setblocking(False)
            if _is_in_a_job(connection):
                connection.close()
            else:
                self._callers.append(_Caller(connection))
        self._callers = [caller for caller in self._callers if self._waits(caller)]

    def stop(self) -> None:
        """Has what runs be told that the attempt is to stop, and be ended."""
        if self._calls is not None:
            with suppress(OSError):  # it has ended, or does not read
                self._calls.send(_STOP, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Has the door end, with all that it has started."""
        for each in (self._calls, self._listener, *(caller.connection for caller in self._callers)):
            if each is not None:
                each.close()
        self._calls, self._callers = None, []
        self._run.door.unlink(missing_ok=True)

    def _waits(self, caller: _Caller) -> bool:
        """Goes on with a caller. Returns whether it has not said all."""
        try:
            message = caller.read(self._key)
            if message is None:
                return True
            self._pass_on(message, caller.connection)
        except OSError:
            pass
        caller.connection.close()
        return False

    def _pass_on(self, message: bytes, connection: socket.socket) -> None:
        assert self._calls is not None
        try:
            socket.send_fds(self._calls, [message], [connection.fileno()], socket.MSG_DONTWAIT)
        except BlockingIOError:
            refuse(connection, "too many programs start in this job at once: try again")
        except OSError:
            refuse(connection, "this job accepts no more programs: it ended the process that starts them")


def _is_in_a_job(connection: socket.socket) -> bool:
    """Returns whether who has connected is in a pid namespace below that of this process, as jobs are."""
    try:
        pid, _ = unix_sockets.peer_of(connection)
        return process.depth(pid) > process.depth(os.getpid())
    except OSError:  # it has ended
        return True
