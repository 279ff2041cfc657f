"""Head and body of an answer are sent by one system call. A head is sent at once if its body comes later."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from api.server.output import Output


class Transport:
    """Records what is sent by each call."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return name


def sent(answer: Callable[[Output, Transport], None]) -> list[bytes]:
    """Returns what each call sent, until the loop waits."""

    async def run() -> list[bytes]:
        transport = Transport()
        answer(Output(cast("Any", transport), asyncio.get_running_loop()), transport)
        await asyncio.sleep(0)
        return transport.sent

    return asyncio.run(run())


def test_a_head_and_its_body_are_sent_together() -> None:
    def answer(output: Output, transport: Transport) -> None:
        output.hold()
        output.write(b"head ")
        assert transport.sent == []
        output.write(b"body")
        output.write(b"more")

    assert sent(answer) == [b"head body", b"more"]


def test_the_head_of_a_stream_is_sent_although_no_body_comes() -> None:
    def answer(output: Output, transport: Transport) -> None:
        output.hold()
        output.write(b"head")

    assert sent(answer) == [b"head"]


def test_what_is_held_is_sent_before_a_file_and_before_the_end() -> None:
    def answer(output: Output, transport: Transport) -> None:
        output.hold()
        output.write(b"head")
        output.flush()
        assert transport.sent == [b"head"]
        output.hold()
        output.write(b"next")
        output.close()

    assert sent(answer) == [b"head", b"next"]


def test_nothing_is_sent_on_a_connection_that_has_ended() -> None:
    def answer(output: Output, transport: Transport) -> None:
        output.hold()
        output.write(b"head")
        transport.close()

    assert sent(answer) == []


def test_all_else_is_asked_of_the_connection() -> None:
    def answer(output: Output, transport: Transport) -> None:
        assert output.get_extra_info("socket") == "socket"
        assert not output.is_closing()

    assert sent(answer) == []
