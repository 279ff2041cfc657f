"""One connection: files that the kernel sends, caps on a request's head, and deadlines for the client."""

import asyncio
from functools import partial
import logging
import os
import socket
import struct
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api import problems
from api.files import ZERO_COPY
from api.guard import SECURITY_HEADERS
from api.settings import Settings
from torchyard.contract.errors import (
    HeadersTooLarge,
    MalformedHttp,
    RequestTimeout,
    TorchyardError,
    Unavailable,
    UrlTooLong,
)

_LINGER_S = 5
"""For what a client still sends after its answer: closing at once could take that from it (RFC 9112, 9.6)."""

_MOST_URL_BYTES = 8_192
_MOST_HEADER_BYTES = 32_768
_MOST_HEADERS = 100
_MOST_UNPARSED_BYTES = _MOST_URL_BYTES + 2 * _MOST_HEADER_BYTES
_PART = 1 << 23
_BYTES_ACKED = struct.Struct("120xQ")
"""`tcpi_bytes_acked` of Linux's `struct tcp_info`: what the other side's kernel has taken, ever."""

_NO_HEAD = "the head of the request did not arrive"
_NO_BODY = "nothing of the body arrived"

_log = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """What it refuses by itself, it answers as the application would: with a problem."""

    def __init__(
        self,
        config: Any,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings: Settings = config.settings
        self._deadline: float | None = None
        self._late = ""
        self._head_complete = False
        self._unparsed = 0
        self._ended = False
        self._says_close = False
        self._sends_file = False
        self._acked = -1
        self._acked_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect("", self._settings.head_timeout_s)

    def data_received(self, data: bytes) -> None:
        if self._ended or self.parser is None:
            return
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # it is answered as HTTP/1.1: RFC 9110, 7.8
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, TorchyardError) else MalformedHttp("the request is no valid HTTP"))
        else:
            if self._unparsed > _MOST_UNPARSED_BYTES:
                self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._head_complete = False
        self._expect(_NO_HEAD, self._settings.head_timeout_s)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete:  # else it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Raises TorchyardError, which `data_received` finds in the parser's own error."""
        self._head_complete = True
        size = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.url) > _MOST_URL_BYTES or size > _MOST_HEADER_BYTES or len(self.headers) > _MOST_HEADERS:
            raise self._head_too_large()
        if len(self.connections) > self._settings.max_connections:
            raise Unavailable(f"there are {len(self.connections)} connections, more than this server takes; try again")
        self._unset_keepalive_if_required()  # armed in between, if an earlier request was answered only now
        self._expect(_NO_BODY, self._settings.body_timeout_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if not self.cycle.response_complete:  # else its end is awaited, however much arrives
            self._expect(_NO_BODY, self._settings.body_timeout_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        self._deadline = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._says_close:
            self._unset_keepalive_if_required()
            self._end_after_answer()

    def look(self) -> None:
        """Called every second: ends the connection where the client is too slow."""
        now = self.loop.time()
        if self._sends_file or self.transport.get_write_buffer_size():
            self._check_reader(now)
            return
        self._acked = -1
        if self._deadline is None or now < self._deadline:
            return
        if self.flow.read_paused:  # it waits for us
            self._expect(self._late, self._settings.body_timeout_s)
        elif self._late:
            self._refuse(RequestTimeout(self._late))
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, cast("Any", partial(self._run, cycle, app)))

    async def _run(self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_files_too(message: Message) -> None:
            if message["type"] == ZERO_COPY:
                await self._send_file(cycle, message)
            elif message["type"] == "http.response.start" and cycle.more_body:
                await self._start_last_answer(cycle, message, send)
            else:
                await send(message)

        try:
            scope["extensions"] = {ZERO_COPY: {}}
            await app(scope, receive, send_files_too)
        except asyncio.CancelledError:  # the grace of a shutdown is over
            cycle.disconnected = True
            self.transport.abort()

    async def _start_last_answer(self, cycle: RequestResponseCycle, message: Message, send: Send) -> None:
        """For a request whose body has not ended: its rest is not read, so no other request can follow it."""
        await send({**message, "headers": [*message["headers"], (b"connection", b"close")]})
        self._says_close = True
        cycle.keep_alive = True  # else the connection is closed with the answer, not `_LINGER_S` later

    async def _send_file(self, cycle: RequestResponseCycle, message: Message) -> None:
        """Obeys the ASGI extension "Zero Copy Send"; every key of the message is given."""
        file, offset, end = message["file"], message["offset"], message["offset"] + message["count"]
        self._sends_file = True
        try:
            while offset < end:
                if cycle.disconnected or self.transport.is_closing():
                    raise ConnectionResetError("the client has gone")
                count = min(_PART, end - offset)
                # The kernel reads the next part ahead, so that no disk holds up the loop.
                os.posix_fadvise(file.fileno(), offset + count, _PART, os.POSIX_FADV_WILLNEED)
                sent = await self.loop.sendfile(self.transport, file, offset, count)
                if not sent:
                    raise EOFError(f"{file.name} ends {end - offset} bytes early")
                offset += sent
                cycle.expected_content_length -= sent
        except OSError as error:
            _log.info("the sending of %s to %s ended early: %s", file.name, self.client, error)
            cycle.disconnected = True
            self.transport.abort()
        finally:
            self._sends_file = False
        if not message["more_body"]:
            await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _expect(self, late: str, seconds: float) -> None:
        """Gives the client `seconds`; `late` tells it what was wrong, empty where there is nobody to tell."""
        self._late = late and f"{late} within {seconds:g} s"
        self._deadline = self.loop.time() + seconds

    def _head_too_large(self) -> TorchyardError:
        if len(self.url) > _MOST_URL_BYTES:
            return UrlTooLong(f"send a URL of at most {_MOST_URL_BYTES} bytes")
        return HeadersTooLarge(f"send at most {_MOST_HEADERS} headers of {_MOST_HEADER_BYTES} bytes together")

    def _refuse(self, error: TorchyardError) -> None:
        """Answers what the application cannot, or need not, and ends the connection."""
        self._ended, cycle = True, cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False  # an earlier request is being answered: that is the last answer
            self._deadline = None
            return
        if cycle is not None and cycle.more_body:
            if self.pipeline or cycle.response_started:
                self._cut()
                return
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
        _log.info("refused a request of %s: %s", self.client, error.message)
        self.transport.write(
            problems.http_answer(error, headers=[*self.server_state.default_headers, *SECURITY_HEADERS])
        )
        self._end_after_answer()

    def _end_after_answer(self) -> None:
        """Sends nothing more, and drops what comes until the client ends the connection or `_LINGER_S` is over."""
        self._ended = True
        self.transport.write_eof()
        self._expect("", _LINGER_S)

    def _check_reader(self, now: float) -> None:
        """Cuts off a client that has taken nothing of its answer for too long."""
        connection = self.transport.get_extra_info("socket")
        (acked,) = _BYTES_ACKED.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size))
        if acked != self._acked:
            self._acked, self._acked_at = acked, now
        elif now - self._acked_at >= self._settings.stall_timeout_s:
            _log.info("cut %s off: it took nothing of its answer for %g s", self.client, now - self._acked_at)
            self._cut()

    def _cut(self) -> None:
        if not self._sends_file:
            self.transport.abort()
            return
        # The kernel's copying must end before the descriptor is closed: it ends with an error.
        self.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
