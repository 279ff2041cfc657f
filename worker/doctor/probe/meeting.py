"""Nodes of a probe job meet over TCP: each connects to the other, and they compare clocks and locks."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
import fcntl
import hmac
from pathlib import Path
import socket
import time

from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.doctor.probe.facts import Hello, Listener, Met, ProbeFolder, ProbeRequest, Reached

_LINE = 1000
"""Bytes of what one node says to another, at most."""
_PATIENCE_S = 10.0
_STRANGER_S = 3.0
"""How long one that connects may take to say who it is."""
_LOOK_S = 0.5


def host(folder: ProbeFolder, request: ProbeRequest, address: str) -> Met:
    """Waits for the other nodes, with a file locked, and connects to each. Raises OSError."""
    deadline = time.monotonic() + request.wait_s
    guests: list[Reached] = []
    with _locked(folder.lock) as no_locks, _listening(address) as server:
        write_record(folder.listener, _listener_of(server))
        server.settimeout(_LOOK_S)
        while len(guests) < request.nodes - 1 and time.monotonic() < deadline and not _all_reported(folder, request):
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                guests += _guest(connection, request)
    return Met(reached=guests, no_locks=no_locks)


def join(folder: ProbeFolder, request: ProbeRequest, address: str, *, rank: int) -> Met:
    """Connects to the first node, and is connected to by it. Raises OSError."""
    listener = _listener(folder, request)
    if listener is None:
        return _unreached(f"no word of it in {folder.root} within {request.wait_s:g} s")
    try:
        with (
            _listening(address) as server,
            socket.create_connection((listener.address, listener.port), timeout=_PATIENCE_S) as connection,
        ):
            asked = time.monotonic(), time.time()
            _say(connection, Hello(token=request.token, rank=rank, listener=_listener_of(server)))
            reached = _compared(float(_heard(connection, _PATIENCE_S)), *asked)
            _await_call(server, request)
            met = _tried_lock(folder.lock, reached)
            connection.sendall(b"done\n")
            return met
    except (OSError, ValueError) as error:
        return _unreached(f"{listener.address} port {listener.port}: {error}")


def _guest(connection: socket.socket, request: ProbeRequest) -> Iterator[Reached]:
    """Answers one that has connected, if it is a node of this probe."""
    hello = _hello(connection, request)
    if hello is None:
        return
    try:
        connection.settimeout(_PATIENCE_S)
        connection.sendall(f"{time.time()!r}\n".encode())
        listener = hello.listener
        try:
            with socket.create_connection((listener.address, listener.port), timeout=_PATIENCE_S) as back:
                back.sendall(f"{request.token}\n".encode())
            yield Reached(rank=hello.rank)
        except OSError as error:
            yield Reached(rank=hello.rank, error=f"{listener.address} port {listener.port}: {error}")
        _heard(connection, 2 * _PATIENCE_S)  # until then, the file stays locked
    except (OSError, ValueError):
        return


def _hello(connection: socket.socket, request: ProbeRequest) -> Hello | None:
    """Returns who has connected; None for a stranger."""
    try:
        hello = Hello.from_json(_heard(connection, _STRANGER_S))
    except (OSError, ValueError):
        return None
    return hello if hmac.compare_digest(hello.token, request.token) else None


def _await_call(server: socket.socket, request: ProbeRequest) -> None:
    """Waits until the first node has connected, or has given up. Strangers are passed over."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := deadline - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            connection, _ = server.accept()
            with connection:
                if hmac.compare_digest(_heard(connection, _STRANGER_S).encode(), request.token.encode()):
                    return
        except (OSError, ValueError):
            continue


def _unreached(why: str) -> Met:
    return Met(reached=[Reached(rank=0, error=why)])


def _compared(theirs: float, began: float, ours: float) -> Reached:
    """Compares the clocks. `began` and `ours`: the monotonic and the real time when the other was asked."""
    half = (time.monotonic() - began) / 2
    return Reached(rank=0, clock_ahead_s=theirs - (ours + half), uncertainty_s=half)


def _listener(folder: ProbeFolder, request: ProbeRequest) -> Listener | None:
    deadline = time.monotonic() + request.wait_s
    while time.monotonic() < deadline:
        if (
            folder.listener.name in folder.names()
            and (listener := read_untrusted(folder.listener, Listener)) is not None
        ):
            return listener
        time.sleep(_LOOK_S)
    return None


def _all_reported(folder: ProbeFolder, request: ProbeRequest) -> bool:
    """Returns whether all other nodes have written what they know, and so will not connect any more."""
    return {folder.facts(rank).name for rank in range(1, request.nodes)} <= folder.names()


@contextmanager
def _locked(path: Path) -> Generator[str | None]:
    """Holds the file locked for the block, to which it gives why that is not possible, if so."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            yield str(error)
            return
        yield None


def _tried_lock(path: Path, reached: Reached) -> Met:
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Met(reached=[reached], locks="refused")
        except OSError as error:
            return Met(reached=[reached], no_locks=str(error))
    return Met(reached=[reached], locks="granted")


def _listening(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def _listener_of(server: socket.socket) -> Listener:
    address, port, *_ = server.getsockname()
    return Listener(address=address, port=port)


def _say(connection: socket.socket, record: Record) -> None:
    connection.sendall(f"{record.to_json()}\n".encode())


def _heard(connection: socket.socket, seconds: float) -> str:
    """Returns the next line. Raises ValueError for one that is too long or has no end, and OSError."""
    deadline, received = time.monotonic() + seconds, b""
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(_LINE - len(received)) if len(received) < _LINE else b""
        if not chunk:
            raise ValueError("no whole answer")
        received += chunk
    return received.decode().strip()
