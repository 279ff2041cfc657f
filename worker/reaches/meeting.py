"""The worker's end of a meeting: it proves itself to the service, and passes bytes on to what runs in the attempt."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import logging
import socket
import ssl
import threading

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from store.worker.records import ReachOrder
from torchyard.contract.reach.frames import Frame, Kind
from torchyard.contract.reach.proof import Handshake
from torchyard.host import trust

OWN_API = "http://127.0.0.1:8000"
"""Where the API of this host is, unless a setting says otherwise."""
_OPEN_S = 10.0
_MET_S = 45.0
"""The service waits 30 s for the client."""
_PING_S, _PONG_S = 30.0, 60.0
_READ_BYTES = 1 << 18
_MOST_WAITING = 4
"""Messages that have come and wait for the program."""
_FINISHED, _CUT = 1000, 1001

logging.getLogger("websockets").setLevel(logging.WARNING)  # it tells of each connection


class NotMet(Exception):
    """The service cannot be reached now, or does not take this end. The text says why."""


class NotTheService(Exception):
    """What answers at the address of the service does not know the secret of the meeting."""


@dataclass(frozen=True)
class ServiceAddress:
    """Where the worker reaches the service."""

    url: str = OWN_API
    """`http://HOST:PORT` or `https://HOST:PORT`."""
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Makes what checks the certificate of the service. Raises ConfigError."""


@contextmanager
def met(address: ServiceAddress, order: ReachOrder) -> Generator[ClientConnection]:
    """Yields the connection once the client is there, too, and the service has proved itself.

    Raises NotMet where it may be tried again, and NotTheService.
    """
    is_secured = address.url.startswith("https:")
    path = f"/v1/reaches/{order.id}/stream?meeting={order.meeting}&end=worker"
    opening = connect(
        f"ws{address.url.removeprefix('http')}{path}",
        ssl=address.context() if is_secured else None,
        proxy=trust.proxy_of(address.url) if is_secured else None,
        compression=None,
        open_timeout=_OPEN_S,
        close_timeout=1,
        ping_interval=_PING_S,
        ping_timeout=_PONG_S,
        max_size=_READ_BYTES + 1,
        max_queue=_MOST_WAITING,
    )
    try:
        connection = opening.__enter__()
    except (OSError, WebSocketException) as error:
        raise NotMet(f"{address.url} cannot be reached: {error}") from None
    try:
        _prove(connection, order)
        yield connection
    finally:
        opening.__exit__(None, None, None)


def refuse(connection: ClientConnection, why: str) -> None:
    """Tells the client why nothing runs."""
    try:
        connection.send(Frame(Kind.ERROR, content=why.encode()).encode())
        connection.close(_FINISHED)
    except ConnectionClosed:
        pass


class Passage:
    """Passes bytes both ways between the service and what runs in the attempt."""

    def __init__(self, connection: ClientConnection, handler: socket.socket) -> None:
        self._connection, self._handler = connection, handler
        self._was_cut = False

    def run(self) -> None:
        """Returns once one side is gone. A handler that is gone has finished, and the service is told so."""
        inwards = threading.Thread(target=self._pass_in, name="to a reach", daemon=True)
        inwards.start()
        buffer = bytearray(_READ_BYTES)
        with suppress(OSError, ConnectionClosed), memoryview(buffer) as view:
            while count := self._handler.recv_into(buffer):
                self._connection.send(bytes(view[:count]))
        self._connection.close(_CUT if self._was_cut else _FINISHED)
        inwards.join()

    def cut(self) -> None:
        """Ends this passage. The handler keeps what it has not sent for the next meeting. Any thread may call it."""
        self._was_cut = True
        with suppress(OSError):
            self._handler.shutdown(socket.SHUT_RDWR)

    def _pass_in(self) -> None:
        try:
            for message in self._connection:
                self._handler.sendall(message if isinstance(message, bytes) else message.encode())
        except OSError:
            return  # the handler is gone: what it has said last is passed on
        except ConnectionClosed:
            pass
        self.cut()


def _prove(connection: ClientConnection, order: ReachOrder) -> None:
    """Raises NotMet, and NotTheService."""
    handshake = Handshake(order.secret, side="worker", reach=order.id, meeting=order.meeting)
    try:
        connection.send(handshake.answer(connection.recv(timeout=_OPEN_S)))
        handshake.check(connection.recv(timeout=_MET_S))
    except ConnectionClosed as error:
        raise _not_met(error) from None
    except TimeoutError:
        raise NotMet("it did not prove itself in time") from None
    except ValueError as error:
        raise NotTheService(str(error)) from None


def _not_met(error: ConnectionClosed) -> NotMet:
    return NotMet("the connection was cut" if error.rcvd is None else f"it closed: {error.rcvd.reason}")
