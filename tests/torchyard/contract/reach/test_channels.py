"""A sender and a receiver, and a connection between them that is cut again and again."""

from random import Random

import pytest

from torchyard.contract.reach.channels import WINDOW, Incoming, Outgoing
from torchyard.contract.reach.frames import BadFrame, Frame, Kind, with_number


@pytest.mark.parametrize("seed", range(5))
def test_all_bytes_come_once_and_in_order_over_connections_that_are_cut(seed: int) -> None:
    random = Random(seed)
    text = random.randbytes(3 * WINDOW)
    sender, receiver = Outgoing(0), Incoming(0)
    put, arrived = 0, bytearray()
    while not receiver.has_ended:
        part = text[put : put + min(sender.room, random.randrange(1, WINDOW))]
        sender.put(part)
        put += len(part)
        if put == len(text):
            sender.end()
        for frame in sender.frames():
            if random.random() < 0.05:  # it is lost with all that follows
                sender.resume(receiver.received)
                break
            ack = _receive(receiver, frame, arrived)
            if ack is not None and random.random() < 0.9:  # an acknowledgement may be lost, too
                sender.acknowledge(ack.number)
    assert bytes(arrived) == text


def _receive(receiver: Incoming, frame: Frame, arrived: bytearray) -> Frame | None:
    if frame.kind is Kind.EOF:
        receiver.end()
        return None
    receiver.take(frame.content)
    arrived += frame.content
    return receiver.passed_on(len(frame.content))


def test_a_sender_takes_no_more_than_its_window_until_that_has_arrived() -> None:
    sender = Outgoing(0)
    sender.put(bytes(WINDOW))
    assert sender.room == 0
    with pytest.raises(ValueError, match="1 bytes"):
        sender.put(b"x")
    assert sum(len(frame.content) for frame in sender.frames()) == WINDOW
    sender.acknowledge(10)
    assert sender.room == 10


def test_a_sender_whose_acknowledgements_are_lost_with_the_connection_goes_on_with_the_next_one() -> None:
    sender, receiver = Outgoing(0), Incoming(0)
    sender.put(bytes(WINDOW))
    for frame in sender.frames():
        receiver.take(frame.content)
        receiver.passed_on(len(frame.content))
    assert sender.room == 0
    sender.resume(receiver.received)
    sender.acknowledge(receiver.resume().number)
    assert sender.room == WINDOW


def test_the_last_bytes_are_acknowledged_so_that_the_sender_is_done() -> None:
    sender, receiver = Outgoing(0), Incoming(0)
    sender.put(b"abc")
    sender.end()
    for frame in sender.frames():
        if frame.kind is Kind.EOF:
            receiver.end()
        else:
            receiver.take(frame.content)
            assert receiver.passed_on(3) is None
    last = receiver.passed_on(0)
    assert last is not None
    sender.acknowledge(last.number)
    assert sender.is_done
    assert receiver.passed_on(0) is None


def test_a_receiver_refuses_what_no_sender_may_send() -> None:
    receiver = Incoming(0)
    with pytest.raises(BadFrame, match="acknowledged"):
        receiver.take(bytes(WINDOW + 1))
    ended = Incoming(0)
    ended.end()
    with pytest.raises(BadFrame, match="after the end"):
        ended.take(b"x")


@pytest.mark.parametrize("total", [-1, 4, 2**60])
def test_a_sender_refuses_acknowledgements_of_what_it_did_not_send(total: int) -> None:
    sender = Outgoing(0)
    sender.put(b"abc")
    list(sender.frames())
    with pytest.raises(BadFrame):
        sender.acknowledge(with_number(Kind.ACK, total).number)
    with pytest.raises(BadFrame):
        sender.resume(total)
