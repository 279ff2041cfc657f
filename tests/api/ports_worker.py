"""The worker's end of a reach for ports, in a thread of a test: it connects to what listens on this host."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
import json
import socket
from threading import Thread
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from store.attempts import read
from store.attempts.facts import Claim
from tests.api.raw import wait_until
from tests.api.reach_ends import await_other, open_socket, send_proof
from tests.api.service import ApiFixture
from torchyard.contract.reach.frames import Frame, FrameReader, Kind, with_number


@contextmanager
def working(service: ApiFixture, url: str, claim: Claim) -> Generator[None]:
    """Answers the order of the next reach, as the attempt's worker does."""
    ended: list[bool] = []
    thread = Thread(target=_work, args=(service, url, claim, lambda: bool(ended)))
    thread.start()
    try:
        yield
    finally:
        ended.append(True)
        thread.join()


def _work(service: ApiFixture, url: str, claim: Claim, is_over: Callable[[], bool]) -> None:
    orders: list[Any] = []

    def has_order() -> bool:
        with service.database.read() as session:
            orders[:] = [order for order in read.read_wanted(session, claim).reaches if order.kind == "start"]
        return bool(orders) or is_over()

    wait_until(has_order)
    if not orders:
        return
    order = orders[0]
    opened = {"id": order.id, "meeting": order.meeting, "secret": order.secret}
    opened["url"] = f"/v1/reaches/{order.id}/stream?meeting={order.meeting}"
    with open_socket(url, opened, "worker") as connection:
        await_other(connection, opened, send_proof(connection, opened, "worker"))
        connection.send(Frame(Kind.HELLO, content=b"{}").encode())
        _serve(connection, is_over)


def _serve(connection: ClientConnection, is_over: Callable[[], bool]) -> None:
    reader, sockets = FrameReader(), dict[int, socket.socket]()
    received: dict[int, int] = {}
    while not is_over():
        try:
            message = connection.recv(timeout=0.05)
        except TimeoutError:
            continue
        except ConnectionClosed:
            break
        assert isinstance(message, bytes)
        for frame in reader.feed(message):
            number = frame.channel
            if frame.kind is Kind.OPEN:
                try:
                    sockets[number] = socket.create_connection(("127.0.0.1", json.loads(frame.content)["port"]))
                except OSError as error:
                    connection.send(Frame(Kind.REFUSED, number, str(error).encode()).encode())
                    continue
                connection.send(Frame(Kind.OPENED, number).encode())
                Thread(target=_pump, args=(connection, number, sockets[number]), daemon=True).start()
            elif frame.kind is Kind.DATA:
                with suppress(OSError):
                    sockets[number].sendall(frame.content)
                received[number] = received.get(number, 0) + len(frame.content)
                connection.send(with_number(Kind.ACK, received[number], channel=number).encode())
            elif frame.kind is Kind.CLOSE and number in sockets:
                with suppress(OSError):
                    sockets[number].shutdown(socket.SHUT_RDWR)
    for each in sockets.values():
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def _pump(connection: ClientConnection, number: int, source: socket.socket) -> None:
    with suppress(ConnectionClosed):
        with suppress(OSError):
            while content := source.recv(1 << 16):
                connection.send(Frame(Kind.DATA, number, content).encode())
        connection.send(Frame(Kind.EOF, number).encode())
