"""What strangers and damaged connections do to the messages between coordinator and nodes."""

from collections.abc import Generator
import contextlib
import socket
import struct
import threading

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from worker.engines.slurm.channel import Channel, ChannelClosed, Door, Message, connect

KEY = b"k" * 32
LENGTH = struct.Struct("!I")


class Network:
    """A door, and what is connected to it. All is closed at the end."""

    def __init__(self, closing: contextlib.ExitStack) -> None:
        self._closing = closing
        self.door = Door("127.0.0.1", key=KEY, nodes=2)
        closing.callback(self.door.close)

    def opened(self, *, port: int | None = None) -> tuple[Channel, Channel]:
        """Returns the ends of a new connection: that of the coordinator, and that of the node."""
        nodes: list[Channel] = []
        to = port or self.door.port
        node = threading.Thread(target=lambda: nodes.append(connect("127.0.0.1", to, key=KEY, timeout_s=30)))
        node.start()
        admitted: list[Channel] = []
        wait_for(lambda: admitted.extend(self.door.admit()) or admitted, "the node")
        node.join()
        for channel in (*admitted, *nodes):
            self._closing.callback(channel.close)
        return admitted[0], nodes[0]


@pytest.fixture
def network() -> Generator[Network]:
    with contextlib.ExitStack() as closing:
        yield Network(closing)


def received(channel: Channel, count: int) -> list[Message]:
    found: list[Message] = []
    wait_for(lambda: found.extend(channel.receive()) or len(found) >= count, "messages")
    return found


def test_messages_arrive_in_both_directions_in_their_order(network: Network) -> None:
    coordinator, node = network.opened()
    for number in range(20):
        node.send("beat", {"number": number})
        coordinator.send("stop", {"text": "é" * number})
    assert [message.body["number"] for message in received(coordinator, 20)] == list(range(20))
    assert received(node, 20)[19] == Message("stop", {"text": "é" * 19})


def test_what_was_sent_before_the_end_arrives(network: Network) -> None:
    coordinator, node = network.opened()
    node.send("end", {"text": "x" * 1_000_000})

    def drained() -> bool:
        node.flush()
        return not node.has_unsent

    found: list[Message] = []
    wait_for(lambda: found.extend(coordinator.receive()) or drained(), "the message to be sent")
    node.close()
    wait_for(lambda: found or found.extend(coordinator.receive()), "the message")
    assert found[0].kind == "end"
    with pytest.raises(ChannelClosed):
        received(coordinator, 1)


def test_a_node_with_another_key_is_sent_away(network: Network) -> None:
    refused: list[BaseException] = []

    def try_it() -> None:
        try:
            connect("127.0.0.1", network.door.port, key=b"x" * 32, timeout_s=30)
        except OSError as error:
            refused.append(error)

    stranger = threading.Thread(target=try_it)
    stranger.start()
    wait_for(lambda: network.door.admit() or not stranger.is_alive(), "the refusal")
    assert refused


def test_a_node_believes_no_coordinator_without_the_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def pretend() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(b"n" * 32)
                connection.recv(64)
                connection.sendall(b"p" * 32)

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(ConnectionError, match="another key"):
            connect("127.0.0.1", stranger.getsockname()[1], key=KEY, timeout_s=30)


def test_strangers_who_say_nothing_or_nonsense_keep_nobody_out(network: Network) -> None:
    with contextlib.ExitStack() as open_connections:
        for number in range(200):
            stranger = open_connections.enter_context(socket.create_connection(("127.0.0.1", network.door.port)))
            if number % 2:
                stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 200)
            network.door.admit()
        coordinator, node = network.opened()
        node.send("hello")
        assert received(coordinator, 1) == [Message("hello")]
        assert len(network.door.descriptors()) < 100


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(LENGTH.pack(2) + b"{}" + b"\0" * 32, id="without the code"),
        pytest.param(LENGTH.pack(2**32 - 1), id="endless"),
        pytest.param(b"\0" * 200, id="empty"),
    ],
)
def test_what_no_node_can_have_sent_ends_the_connection(network: Network, sent: bytes) -> None:
    coordinator, node = network.opened()
    with socket.socket(fileno=node.fileno()) as raw:
        raw.sendall(sent)
        with pytest.raises(ChannelClosed):
            received(coordinator, 1)
        raw.detach()


def test_a_message_that_is_repeated_or_sent_back_ends_the_connection(network: Network, approved: Approved) -> None:
    with socket.create_server(("127.0.0.1", 0)) as between:
        copies: list[bytes] = []

        def relay() -> None:
            inner, _ = between.accept()
            with inner, socket.create_connection(("127.0.0.1", network.door.port)) as outer:
                inner.sendall(outer.recv(32, socket.MSG_WAITALL))
                outer.sendall(inner.recv(64, socket.MSG_WAITALL))
                inner.sendall(outer.recv(32, socket.MSG_WAITALL))
                copies.append(inner.recv(1 << 16))
                outer.sendall(copies[0] * 2)
                outer.recv(1)

        threading.Thread(target=relay, daemon=True).start()
        coordinator, node = network.opened(port=between.getsockname()[1])
        node.send("stop")
        with pytest.raises(ChannelClosed) as raised:
            received(coordinator, 5)
        assert str(raised.value) == approved("message")
