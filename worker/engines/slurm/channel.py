"""Messages between the coordinator of an attempt and its nodes, over TCP.

Both sides prove that they have the attempt's key, and each message has a code that only they can make: a stranger who
reaches the port, or who changes a message on its way, ends a connection and learns nothing.
"""

from collections.abc import Mapping
import contextlib
from dataclasses import dataclass, field
import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

from torchyard.contract.wire.codec import parse_object
from worker.engines.slurm.sealing import derived

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")
_PROOF = 32
"""Bytes of a nonce and of a code."""
_LONGEST = 4 << 20
_MOST_UNSENT = 16 << 20
_READ = 1 << 16
_KNOCK_S = 10.0
_MOST_KNOCKING = 64


class ChannelClosed(Exception):
    """The other side has closed the connection, or has sent what it cannot have sent."""


@dataclass(frozen=True)
class Message:
    kind: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Channel:
    """One connection whose sides know each other. It never waits."""

    def __init__(self, connection: socket.socket, *, key: bytes, own: bytes, theirs: bytes) -> None:
        """`key`: of this connection alone. `own` and `theirs` name the two directions."""
        connection.setblocking(False)
        self._connection = connection
        self._key = key
        self._own, self._theirs = own, theirs
        self._sent = self._received = 0
        self._unsent = bytearray()
        self._unread = bytearray()
        self.heard_at = time.monotonic()
        """When the last message came."""

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def own_address(self) -> str:
        return self._connection.getsockname()[0]

    @property
    def peer_address(self) -> str:
        return self._connection.getpeername()[0]

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, kind: str, body: Mapping[str, Any] | None = None) -> None:
        """Sends what the connection takes now, and the rest with `flush`. Raises ChannelClosed."""
        payload = Message(kind, body or {})
        content = _encode(payload)
        if len(content) > _LONGEST or len(self._unsent) > _MOST_UNSENT:
            raise ChannelClosed("the other side does not read")
        code = self._code(self._own, self._sent, content)
        self._sent += 1
        self._unsent += _LENGTH.pack(len(content)) + content + code
        self.flush()

    def flush(self) -> None:
        """Raises ChannelClosed."""
        while self._unsent:
            try:
                count = self._connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            del self._unsent[:count]

    def receive(self) -> list[Message]:
        """Returns the messages that have come. Raises ChannelClosed, once there is none left."""
        ended = self._read()
        messages: list[Message] = []
        while (message := self._next()) is not None:
            messages.append(message)
        if messages:
            self.heard_at = time.monotonic()
        elif ended is not None:
            raise ChannelClosed(ended)
        return messages

    def close(self) -> None:
        self._connection.close()

    def _read(self) -> str | None:
        """Reads what is there. Returns why nothing more will come, if so."""
        while len(self._unread) <= _LONGEST:
            try:
                read = self._connection.recv(_READ)
            except BlockingIOError:
                return None
            except OSError as error:
                return str(error)
            if not read:
                return "the other side has closed the connection"
            self._unread += read
        return None

    def _next(self) -> Message | None:
        if len(self._unread) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._unread)
        if length > _LONGEST:
            raise ChannelClosed("a message is too long")
        end = _LENGTH.size + length + _PROOF
        if len(self._unread) < end:
            return None
        content = bytes(self._unread[_LENGTH.size : _LENGTH.size + length])
        code = bytes(self._unread[_LENGTH.size + length : end])
        if not hmac.compare_digest(code, self._code(self._theirs, self._received, content)):
            raise ChannelClosed("a message is not from the other side")
        del self._unread[:end]
        self._received += 1
        return _decode(content)

    def _code(self, direction: bytes, number: int, content: bytes) -> bytes:
        return hmac.digest(self._key, direction + _NUMBER.pack(number) + content, hashlib.sha256)


class Door:
    """Where nodes connect. Who has not proved within some seconds that it has the key is sent away."""

    def __init__(self, address: str, *, key: bytes, nodes: int) -> None:
        """Raises OSError if it cannot listen at the address."""
        self._key = derived(key, "nodes")
        self._listener = socket.create_server((address, 0), backlog=min(4096, nodes + _MOST_KNOCKING))
        self._listener.setblocking(False)
        self._most = nodes + _MOST_KNOCKING
        self._knocking: list[_Knock] = []

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def descriptors(self) -> list[int]:
        return [self._listener.fileno(), *(knock.connection.fileno() for knock in self._knocking)]

    def admit(self) -> list[Channel]:
        """Returns the channels of nodes that have just proved that they have the key. Never waits."""
        self._accept()
        admitted: list[Channel] = []
        waiting: list[_Knock] = []
        for knock in self._knocking:
            channel = knock.answer(self._key)
            if channel is not None:
                admitted.append(channel)
            elif knock.waits:
                waiting.append(knock)
            else:
                knock.connection.close()
        self._knocking = waiting
        return admitted

    def close(self) -> None:
        for knock in self._knocking:
            knock.connection.close()
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(self._most):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody is left, or has gone, or there is no descriptor now
                return
            if len(self._knocking) >= self._most:
                self._knocking.pop(0).connection.close()
            with contextlib.suppress(OSError):
                self._knocking.append(_Knock(connection))


class _Knock:
    """A connection whose other side has proved nothing yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._deadline = time.monotonic() + _KNOCK_S
        self._nonce = secrets.token_bytes(_PROOF)
        self._read = b""
        self._refused = False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.send(self._nonce)

    @property
    def waits(self) -> bool:
        return not self._refused and time.monotonic() < self._deadline

    def answer(self, key: bytes) -> Channel | None:
        try:
            read = self.connection.recv(2 * _PROOF - len(self._read))
        except BlockingIOError:
            return None
        except OSError:
            read = b""
        self._read += read
        self._refused = not read
        if len(self._read) < 2 * _PROOF:
            return None
        theirs, proof = self._read[:_PROOF], self._read[_PROOF:]
        if not hmac.compare_digest(proof, _proof(key, b"node", self._nonce, theirs)):
            self._refused = True
            return None
        try:
            self.connection.send(_proof(key, b"coordinator", self._nonce, theirs))
        except OSError:
            self._refused = True
            return None
        session = _proof(key, b"session", self._nonce, theirs)
        return Channel(self.connection, key=session, own=b"c", theirs=b"n")


def connect(address: str, port: int, *, key: bytes, timeout_s: float) -> Channel:
    """Connects a node to its coordinator. Raises OSError, also if the other side has another key."""
    key = derived(key, "nodes")
    connection = socket.create_connection((address, port), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs, own = _read_exactly(connection), secrets.token_bytes(_PROOF)
        connection.sendall(own + _proof(key, b"node", theirs, own))
        if not hmac.compare_digest(_read_exactly(connection), _proof(key, b"coordinator", theirs, own)):
            raise ConnectionError("it has another key")
    except BaseException:
        connection.close()
        raise
    return Channel(connection, key=_proof(key, b"session", theirs, own), own=b"n", theirs=b"c")


def _proof(key: bytes, purpose: bytes, of_coordinator: bytes, of_node: bytes) -> bytes:
    return hmac.digest(key, purpose + b"\0" + of_coordinator + of_node, hashlib.sha256)


def _read_exactly(connection: socket.socket) -> bytes:
    read = b""
    while len(read) < _PROOF:
        part = connection.recv(_PROOF - len(read))
        if not part:
            raise ConnectionError("it closed the connection")
        read += part
    return read


def _encode(message: Message) -> bytes:
    return json.dumps({"kind": message.kind, "body": message.body}, ensure_ascii=False).encode("utf-8", "replace")


def _decode(content: bytes) -> Message:
    try:
        message = parse_object(content)
        kind, body = message["kind"], message["body"]
        if isinstance(kind, str) and isinstance(body, dict):
            return Message(kind, body)
    except (ValueError, KeyError):
        pass
    raise ChannelClosed("a message has another form")
